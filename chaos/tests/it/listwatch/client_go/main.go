// Command client_go drives the list-watch door with client-go, as a controller does, while members are killed.
//
// It prints "strike" when a member is to be killed, and goes on when a line comes back on standard input. What its
// informers were told goes to the file named by --record, one event a line, for the judge. It ends with 1, and the
// reason on standard error, when something does not hold.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace = "controllers"
	budget    = 5 * time.Minute
	// traffic is for how long writers and informers go on between two steps.
	traffic = 2 * time.Second
)

// stage is what every step needs.
type stage struct {
	door     door
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	commands *bufio.Scanner
}

func main() {
	servers := flag.String("servers", "", "comma-separated addresses (host:port) of doors of one cluster")
	protobuf := flag.Bool("protobuf", false, "send and accept protobuf where the client can")
	record := flag.String("record", "", "file for what the informers were told")
	flag.Parse()
	if err := run(door{servers: strings.Split(*servers, ","), protobuf: *protobuf}, *record); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("all held")
}

func run(door door, record string) error {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	client, dynamicClient, err := door.clients("client-go-writers", requestTimeout)
	if err != nil {
		return err
	}
	stage := &stage{door: door, client: client, dynamic: dynamicClient, commands: bufio.NewScanner(os.Stdin)}
	if err := stage.prepare(ctx); err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	informers, err := startInformers(ctx, door, record)
	if err != nil {
		return fmt.Errorf("informers: %w", err)
	}
	candidates, err := startElection(ctx, door)
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	writers := startWriters(ctx, stage)
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"a strike under traffic", stage.strike},
		{"server-side apply", stage.apply},
		{"pages", stage.pages},
		{"the leader goes on", candidates.firstLeads},
		{"the leader stops", candidates.firstStops},
		{"a strike while nobody leads", stage.strike},
		{"the other candidate leads", candidates.secondLeads},
	} {
		time.Sleep(traffic)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Println("done:", step.name)
	}
	written, err := writers.finish()
	if err != nil {
		return fmt.Errorf("writers: %w", err)
	}
	fmt.Println("done:", written, "writes")
	return informers.finish(ctx, stage)
}

// prepare makes the namespace and the custom kind.
func (s *stage) prepare(ctx context.Context) error {
	if err := persist(ctx, func(ctx context.Context) error {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		_, err := s.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{})
		return err
	}, created); err != nil {
		return err
	}
	return defineLamps(ctx, s.dynamic)
}

// strike has a member killed.
func (s *stage) strike(context.Context) error {
	fmt.Println("strike")
	if !s.commands.Scan() {
		return fmt.Errorf("no answer to a strike: %v", s.commands.Err())
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	requestTimeout = 10 * time.Second
	// unlimited is for clients that watch: a timeout of the client ends watches too.
	unlimited = 0
	// persistFor is how long one write may be retried: an election of the store takes a second or two.
	persistFor = 30 * time.Second
	retryPause = 50 * time.Millisecond
)

// door is one or several addresses that serve the same objects. client-go knows one URL; a connection that cannot be
// made to one address is made to the next, as a load balancer does it.
type door struct {
	servers  []string
	protobuf bool
}

func (d door) config(agent string, timeout time.Duration) *rest.Config {
	var next atomic.Uint32
	config := &rest.Config{
		Host:      "http://" + d.servers[0],
		UserAgent: agent,
		QPS:       -1,
		Timeout:   timeout,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var refused []error
			first := int(next.Add(1))
			for turn := range d.servers {
				server := d.servers[(first+turn)%len(d.servers)]
				connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, server)
				if err == nil {
					return connection, nil
				}
				refused = append(refused, err)
			}
			return nil, errors.Join(refused...)
		},
	}
	if d.protobuf {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return config
}

func (d door) clients(agent string, timeout time.Duration) (kubernetes.Interface, dynamic.Interface, error) {
	typed, err := kubernetes.NewForConfig(d.config(agent, timeout))
	if err != nil {
		return nil, nil, err
	}
	untyped, err := dynamic.NewForConfig(d.config(agent, timeout))
	return typed, untyped, err
}

// What a repeated write is answered with if the first attempt, whose answer was lost, was done.
func created(err error) bool { return apierrors.IsAlreadyExists(err) }
func changed(err error) bool { return apierrors.IsConflict(err) }
func removed(err error) bool { return apierrors.IsNotFound(err) }

// persist repeats a write until it is answered. `done` says which error of a second attempt means that the first
// was done.
func persist(ctx context.Context, write func(context.Context) error, done func(error) bool) error {
	deadline := time.Now().Add(persistFor)
	for attempt := 0; ; attempt++ {
		err := write(ctx)
		switch {
		case err == nil, attempt > 0 && done(err):
			return nil
		case !isTransient(err):
			return err
		case ctx.Err() != nil || time.Now().After(deadline):
			return fmt.Errorf("after %d attempts: %w", attempt+1, err)
		}
		time.Sleep(retryPause)
	}
}

// isTransient tells a lost connection, or a server that asks for patience, from an answer.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == 429 || code >= 500
}

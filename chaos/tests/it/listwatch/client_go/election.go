package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseName     = "elected"
	leaseDuration = 10 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = time.Second
	electedWithin = 20 * time.Second
)

// candidates are two that want one Lease. What became of them is noted in order.
type candidates struct {
	client kubernetes.Interface
	stop   context.CancelFunc
	lock   sync.Mutex
	notes  []string
}

// startElection lets the first candidate win before the second comes.
func startElection(ctx context.Context, door door) (*candidates, error) {
	client, _, err := door.clients("client-go-candidates", renewDeadline/2)
	if err != nil {
		return nil, err
	}
	stopping, stop := context.WithCancel(ctx)
	candidates := &candidates{client: client, stop: stop}
	if err := candidates.start(stopping, "first"); err != nil {
		return nil, err
	}
	if err := candidates.noted(ctx, electedWithin, "first leads"); err != nil {
		return nil, err
	}
	return candidates, candidates.start(ctx, "second")
}

func (c *candidates) start(ctx context.Context, name string) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
			Client:     c.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { c.note(name + " leads") },
			OnStoppedLeading: func() { c.note(name + " stopped") },
		},
	})
	if err == nil {
		go elector.Run(ctx)
	}
	return err
}

func (c *candidates) note(what string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.notes = append(c.notes, what)
}

// noted waits until exactly this has happened.
func (c *candidates) noted(ctx context.Context, within time.Duration, expected ...string) error {
	deadline := time.Now().Add(within)
	for {
		c.lock.Lock()
		notes := slices.Clone(c.notes)
		c.lock.Unlock()
		if slices.Equal(notes, expected) {
			return nil
		}
		if len(notes) >= len(expected) || ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%v, where %v was due", notes, expected)
		}
		time.Sleep(retryPause)
	}
}

// firstLeads holds although members were killed.
func (c *candidates) firstLeads(ctx context.Context) error {
	if err := c.noted(ctx, 0, "first leads"); err != nil {
		return err
	}
	return c.lease(ctx, "first", 0)
}

// firstStops has it go without a word, as one that was killed.
func (c *candidates) firstStops(ctx context.Context) error {
	c.stop()
	return c.noted(ctx, electedWithin, "first leads", "first stopped")
}

func (c *candidates) secondLeads(ctx context.Context) error {
	if err := c.noted(ctx, leaseDuration+electedWithin, "first leads", "first stopped", "second leads"); err != nil {
		return err
	}
	return c.lease(ctx, "second", 1)
}

// lease is what others read of the election.
func (c *candidates) lease(ctx context.Context, holder string, transitions int32) error {
	return persist(ctx, func(ctx context.Context) error {
		lease, err := c.client.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		spec := lease.Spec
		if spec.HolderIdentity == nil || *spec.HolderIdentity != holder ||
			spec.LeaseTransitions == nil || *spec.LeaseTransitions != transitions {
			return fmt.Errorf("the lease is %v", spec.String())
		}
		return nil
	}, func(error) bool { return false })
}

package main

import (
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	writersPerKind = 2
	namesPerWriter = 6
	writePause     = 10 * time.Millisecond
)

// objects are written in the same ways whatever their kind.
type objects interface {
	create(ctx context.Context, name string, value int64) error
	update(ctx context.Context, name string, value int64) error
	patch(ctx context.Context, name string, value int64) error
	remove(ctx context.Context, name string) error
}

type configMaps struct {
	typedcorev1.ConfigMapInterface
}

func configMap(name string, value int64) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"value": strconv.FormatInt(value, 10)},
	}
}

func (c configMaps) create(ctx context.Context, name string, value int64) error {
	_, err := c.Create(ctx, configMap(name, value), metav1.CreateOptions{})
	return err
}

func (c configMaps) update(ctx context.Context, name string, value int64) error {
	object, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.Data = configMap(name, value).Data
	_, err = c.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (c configMaps) patch(ctx context.Context, name string, value int64) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{"color":"c%d"}},"data":{"patched":"%d"}}`, value%3, value)
	_, err := c.Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (c configMaps) remove(ctx context.Context, name string) error {
	return c.Delete(ctx, name, metav1.DeleteOptions{})
}

type lampObjects struct {
	dynamic.ResourceInterface
}

func (l lampObjects) create(ctx context.Context, name string, value int64) error {
	_, err := l.Create(ctx, lamp(name, value), metav1.CreateOptions{})
	return err
}

func (l lampObjects) update(ctx context.Context, name string, value int64) error {
	object, err := l.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(object.Object, value, "spec", "brightness"); err != nil {
		return err
	}
	_, err = l.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (l lampObjects) patch(ctx context.Context, name string, value int64) error {
	patch := fmt.Sprintf(`{"spec":{"brightness":%d}}`, value)
	_, err := l.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (l lampObjects) remove(ctx context.Context, name string) error {
	return l.Delete(ctx, name, metav1.DeleteOptions{})
}

// writers are goroutines that create, change and delete objects of their own names.
type writers struct {
	stop    context.CancelFunc
	done    sync.WaitGroup
	written atomic.Int64
	failed  atomic.Pointer[error]
}

func startWriters(ctx context.Context, stage *stage) *writers {
	stopping, stop := context.WithCancel(context.Background())
	writers := &writers{stop: stop}
	kinds := map[string]objects{
		"config-map": configMaps{stage.client.CoreV1().ConfigMaps(namespace)},
		"lamp":       lampObjects{stage.dynamic.Resource(lamps).Namespace(namespace)},
	}
	for kind, objects := range kinds {
		for number := range writersPerKind {
			writers.done.Add(1)
			go func() {
				defer writers.done.Done()
				stem := fmt.Sprintf("%s-%d", kind, number)
				if err := writers.write(ctx, stopping, objects, stem, int64(number)); err != nil {
					writers.failed.CompareAndSwap(nil, &err)
				}
			}()
		}
	}
	return writers
}

// write ends between two writes.
func (w *writers) write(ctx, stopping context.Context, objects objects, stem string, seed int64) error {
	random := rand.New(rand.NewSource(seed))
	exists := map[string]bool{}
	for stopping.Err() == nil {
		name := fmt.Sprintf("%s-%d", stem, random.Intn(namesPerWriter))
		if err := writeOnce(ctx, objects, random, name, exists); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		w.written.Add(1)
		time.Sleep(writePause)
	}
	return nil
}

func writeOnce(ctx context.Context, objects objects, random *rand.Rand, name string, exists map[string]bool) error {
	value := random.Int63n(1_000_000)
	choice := random.Intn(4)
	switch {
	case !exists[name]:
		exists[name] = true
		return persist(ctx, func(ctx context.Context) error { return objects.create(ctx, name, value) }, created)
	case choice == 0:
		exists[name] = false
		return persist(ctx, func(ctx context.Context) error { return objects.remove(ctx, name) }, removed)
	case choice == 1:
		return persist(ctx, func(ctx context.Context) error { return objects.patch(ctx, name, value) }, changed)
	default:
		return persist(ctx, func(ctx context.Context) error { return objects.update(ctx, name, value) }, changed)
	}
}

// finish lets each writer end its last write, and says how many there were.
func (w *writers) finish() (int64, error) {
	w.stop()
	w.done.Wait()
	if failed := w.failed.Load(); failed != nil {
		return 0, *failed
	}
	return w.written.Load(), nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	syncedWithin = 30 * time.Second
	levelWithin  = 30 * time.Second
)

// informerSet is a shared informer of config maps and a dynamic one of lamps.
type informerSet struct {
	file       *os.File
	recorders  []*recorder
	configMaps *mirror
	lamps      *mirror
}

func startInformers(ctx context.Context, door door, path string) (*informerSet, error) {
	typed, untyped, err := door.clients("client-go-informers", unlimited)
	if err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	lock := &sync.Mutex{}
	ofConfigMaps := &recorder{informer: "configmaps", lock: lock, file: file}
	ofLamps := &recorder{informer: "lamps", lock: lock, file: file}
	factory := informers.NewSharedInformerFactory(typed, 0)
	shared := factory.InformerFor(&corev1.ConfigMap{}, ofConfigMaps.configMapInformer)
	dynamicFactory := dynamicinformer.NewDynamicSharedInformerFactory(recordedClient{untyped, ofLamps}, 0)
	set := &informerSet{file: file, recorders: []*recorder{ofConfigMaps, ofLamps}}
	if set.configMaps, err = follow(shared); err != nil {
		return nil, err
	}
	if set.lamps, err = follow(dynamicFactory.ForResource(lamps).Informer()); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	dynamicFactory.Start(ctx.Done())
	syncing, cancel := context.WithTimeout(ctx, syncedWithin)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), set.configMaps.informer.HasSynced, set.lamps.informer.HasSynced) {
		return nil, errors.New("the caches did not sync")
	}
	return set, nil
}

func (r *recorder) configMapInformer(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceAll)
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			list, err := configMaps.List(context.Background(), options)
			return list, r.listed(list, err)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			events, err := configMaps.Watch(context.Background(), options)
			return r.watched(options, events, err)
		},
	}, &corev1.ConfigMap{}, resync, cache.Indexers{})
}

// recordedClient is a dynamic client whose lists and watches are written down.
type recordedClient struct {
	dynamic.Interface
	recorder *recorder
}

func (c recordedClient) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return recordedResource{c.Interface.Resource(resource), c.recorder}
}

type recordedResource struct {
	dynamic.NamespaceableResourceInterface
	recorder *recorder
}

// Namespace is asked for all of them, which is the resource itself.
func (r recordedResource) Namespace(string) dynamic.ResourceInterface { return r }

func (r recordedResource) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := r.NamespaceableResourceInterface.List(ctx, options)
	return list, r.recorder.listed(list, err)
}

func (r recordedResource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := r.NamespaceableResourceInterface.Watch(ctx, options)
	return r.recorder.watched(options, events, err)
}

// mirror is what the handlers of one informer make of their calls.
type mirror struct {
	informer cache.SharedIndexInformer
	lock     sync.Mutex
	versions map[string]string
	calls    int
	wrong    []error
}

func follow(informer cache.SharedIndexInformer) (*mirror, error) {
	mirror := &mirror{informer: informer, versions: map[string]string{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { mirror.call(nil, object) },
		UpdateFunc: func(before, object any) { mirror.call(before, object) },
		DeleteFunc: func(object any) { mirror.call(object, nil) },
	})
	return mirror, err
}

// call holds a handler to its contract: each call begins where the last one about the object ended.
func (m *mirror) call(before, now any) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.calls++
	key, version := keyAndVersion(now)
	if now == nil {
		key, _ = keyAndVersion(before)
	}
	_, known := m.versions[key]
	switch {
	case before == nil && known:
		m.wrong = append(m.wrong, fmt.Errorf("%s is added twice", key))
	case before != nil && !known:
		m.wrong = append(m.wrong, fmt.Errorf("%s is changed or deleted before it is added", key))
	case before != nil && now != nil:
		_, old := keyAndVersion(before)
		if m.versions[key] != old || number(version) < number(old) {
			m.wrong = append(m.wrong, fmt.Errorf("%s: %s to %s after %s", key, old, version, m.versions[key]))
		}
	}
	if now == nil {
		delete(m.versions, key)
	} else {
		m.versions[key] = version
	}
}

func keyAndVersion(object any) (string, string) {
	if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
		return unknown.Key, ""
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", ""
	}
	return accessor.GetNamespace() + "/" + accessor.GetName(), accessor.GetResourceVersion()
}

// number is what versions of Kubernetes are since 1.35; one that is none comes before all.
func number(version string) uint64 {
	value, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return value
}

// finish waits until caches, handlers and a fresh list say the same. Nobody writes any more.
func (s *informerSet) finish(ctx context.Context, stage *stage) error {
	fresh, err := stage.client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err := s.configMaps.isLevel(fresh, err); err != nil {
		return fmt.Errorf("config maps: %w", err)
	}
	freshLamps, err := stage.dynamic.Resource(lamps).List(ctx, metav1.ListOptions{})
	if err := s.lamps.isLevel(freshLamps, err); err != nil {
		return fmt.Errorf("lamps: %w", err)
	}
	fmt.Println("done:", s.configMaps.calls, "and", s.lamps.calls, "calls of handlers")
	return errors.Join(s.recorders[0].failed, s.recorders[1].failed, s.file.Sync())
}

func (m *mirror) isLevel(list runtime.Object, err error) error {
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	stored, versions := map[string]string{}, map[string]string{}
	for _, item := range items {
		key, version := keyAndVersion(item)
		stored[key], versions[key] = flat(item), version
	}
	deadline := time.Now().Add(levelWithin)
	for !maps.Equal(m.cached(), stored) || !maps.Equal(m.mirrored(), versions) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the cache holds\n%v\nthe handlers know\n%v\nand a list says\n%v", m.cached(), m.mirrored(), stored)
		}
		time.Sleep(retryPause)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	return errors.Join(m.wrong...)
}

func (m *mirror) cached() map[string]string {
	cached := map[string]string{}
	for _, object := range m.informer.GetStore().List() {
		key, _ := keyAndVersion(object)
		cached[key] = flat(object)
	}
	return cached
}

func (m *mirror) mirrored() map[string]string {
	m.lock.Lock()
	defer m.lock.Unlock()
	return maps.Clone(m.versions)
}

// flat is an object as text, without its type, which lists leave out.
func flat(object any) string {
	text, err := json.Marshal(object)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	delete(fields, "kind")
	delete(fields, "apiVersion")
	if text, err = json.Marshal(fields); err != nil {
		return err.Error()
	}
	return string(text)
}

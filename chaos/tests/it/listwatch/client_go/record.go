package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// entry is one line for the judge.
type entry struct {
	Informer        string           `json:"informer"`
	Type            string           `json:"type"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	Object          runtime.Object   `json:"object,omitempty"`
	Items           []runtime.Object `json:"items,omitempty"`
}

// recorder writes down what the lists and watches of one informer are answered with, before it sees it.
type recorder struct {
	informer string
	lock     *sync.Mutex
	file     *os.File
	failed   error
}

func (r *recorder) write(line entry) {
	r.lock.Lock()
	defer r.lock.Unlock()
	line.Informer = r.informer
	text, err := json.Marshal(line)
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if err != nil {
		r.failed = err
	}
}

// listed notes a list.
func (r *recorder) listed(list runtime.Object, err error) error {
	if err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	if accessor.GetContinue() != "" {
		return fmt.Errorf("a list at version 0 came in pages")
	}
	items, err := meta.ExtractList(list)
	r.write(entry{Type: "LISTED", ResourceVersion: accessor.GetResourceVersion(), Items: items})
	return err
}

// watched notes what a watch tells as it is taken.
func (r *recorder) watched(options metav1.ListOptions, events watch.Interface, err error) (watch.Interface, error) {
	if err != nil {
		return nil, err
	}
	initial := map[string]runtime.Object{}
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		initial = nil
		r.write(entry{Type: "RESUMED", ResourceVersion: options.ResourceVersion})
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if initial != nil {
			if r.isListed(event, initial) {
				initial = nil
			}
		} else {
			r.event(event)
		}
		return event, true
	}), nil
}

// isListed collects initial events, and notes them as a list when their bookmark has come.
func (r *recorder) isListed(event watch.Event, objects map[string]runtime.Object) bool {
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return false
	}
	key := accessor.GetNamespace() + "/" + accessor.GetName()
	switch event.Type {
	case watch.Added, watch.Modified:
		objects[key] = event.Object.DeepCopyObject()
	case watch.Deleted:
		delete(objects, key)
	case watch.Bookmark:
		if accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return false
		}
		line := entry{Type: "LISTED", ResourceVersion: accessor.GetResourceVersion()}
		for _, object := range objects {
			line.Items = append(line.Items, object)
		}
		r.write(line)
		return true
	}
	return false
}

func (r *recorder) event(event watch.Event) {
	switch event.Type {
	case watch.Bookmark:
		if accessor, err := meta.Accessor(event.Object); err == nil {
			r.write(entry{Type: "BOOKMARK", ResourceVersion: accessor.GetResourceVersion()})
		}
	case watch.Error:
		r.write(entry{Type: "ERROR", Object: event.Object})
	default:
		r.write(entry{Type: strings.ToUpper(string(event.Type)), Object: event.Object})
	}
}

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

const servedWithin = 20 * time.Second

var (
	lamps       = schema.GroupVersionResource{Group: "go.example.com", Version: "v1", Resource: "lamps"}
	definitions = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
)

func lampDefinition() *unstructured.Unstructured {
	type fields = map[string]any
	integer := fields{"type": "integer"}
	spec := fields{"type": "object", "properties": fields{"brightness": integer}}
	return &unstructured.Unstructured{Object: fields{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   fields{"name": "lamps.go.example.com"},
		"spec": fields{
			"group": lamps.Group,
			"scope": "Namespaced",
			"names": fields{"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"},
			"versions": []any{fields{
				"name": "v1", "served": true, "storage": true,
				"schema": fields{"openAPIV3Schema": fields{"type": "object", "properties": fields{"spec": spec}}},
			}},
		},
	}}
}

// defineLamps makes the custom kind, and waits until every server of the door serves it.
func defineLamps(ctx context.Context, client dynamic.Interface) error {
	if err := persist(ctx, func(ctx context.Context) error {
		_, err := client.Resource(definitions).Create(ctx, lampDefinition(), metav1.CreateOptions{})
		return err
	}, created); err != nil {
		return err
	}
	var last error
	inARow := 0
	err := wait.PollUntilContextTimeout(ctx, retryPause, servedWithin, true, func(ctx context.Context) (bool, error) {
		_, last = client.Resource(lamps).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if inARow++; last != nil {
			inARow = 0
		}
		return inARow == 20, nil
	})
	if err != nil {
		return fmt.Errorf("lamps are not served: %w (%v)", err, last)
	}
	return nil
}

func lamp(name string, brightness int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "go.example.com/v1",
		"kind":       "Lamp",
		"metadata":   map[string]any{"name": name, "namespace": namespace},
		"spec":       map[string]any{"brightness": brightness},
	}}
}

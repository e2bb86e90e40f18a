package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// apply has two managers apply one field: a conflict, then by force at another member.
func (s *stage) apply(ctx context.Context) error {
	one, two := metav1.ApplyOptions{FieldManager: "one"}, metav1.ApplyOptions{FieldManager: "two"}
	if _, err := s.applyColor(ctx, "blue", one); err != nil {
		return err
	}
	_, err := s.applyColor(ctx, "red", two)
	if !isFieldConflict(err) {
		return fmt.Errorf("the second manager met no conflict: %v", err)
	}
	if err := s.strike(ctx); err != nil {
		return err
	}
	two.Force = true
	forced, err := s.applyColor(ctx, "red", two)
	if err != nil {
		return fmt.Errorf("by force: %w", err)
	}
	owned, err := applycorev1.ExtractConfigMap(forced, "two")
	if err != nil {
		return err
	}
	lost, err := applycorev1.ExtractConfigMap(forced, "one")
	if err != nil {
		return err
	}
	if owned.Data["color"] != "red" || len(lost.Data) != 0 || forced.Data["color"] != "red" {
		return fmt.Errorf("after force one has %v and two %v of %v", lost.Data, owned.Data, forced.Data)
	}
	// What the first manager no longer applies, and another one owns, stays.
	left, err := s.applyColor(ctx, "", one)
	if err != nil {
		return err
	}
	if left.Data["color"] != "red" {
		return fmt.Errorf("the field of another manager is gone: %v", left.Data)
	}
	return nil
}

// applyColor applies the field, or an object without it.
func (s *stage) applyColor(ctx context.Context, color string, options metav1.ApplyOptions) (*corev1.ConfigMap, error) {
	object := applycorev1.ConfigMap("applied", namespace)
	if color != "" {
		object = object.WithData(map[string]string{"color": color})
	}
	var applied *corev1.ConfigMap
	err := persist(ctx, func(ctx context.Context) (err error) {
		applied, err = s.client.CoreV1().ConfigMaps(namespace).Apply(ctx, object, options)
		return err
	}, func(error) bool { return false })
	return applied, err
}

func isFieldConflict(err error) bool {
	status, is := err.(apierrors.APIStatus)
	return is && apierrors.IsConflict(err) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
			return cause.Type == metav1.CauseTypeFieldManagerConflict && cause.Field == ".data.color"
		})
}

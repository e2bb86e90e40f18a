package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

const (
	paged    = 25
	pageSize = 10
)

func pageName(number int) string { return fmt.Sprintf("page-%02d", number) }

// pages reads a list in pieces. Its second piece comes from another member, after changes that it does not show.
func (s *stage) pages(ctx context.Context) error {
	objects := configMaps{s.client.CoreV1().ConfigMaps(namespace)}
	var expected []string
	for number := range paged {
		expected = append(expected, pageName(number))
		if err := s.createPaged(ctx, pageName(number)); err != nil {
			return err
		}
	}
	first, err := s.page(ctx, "")
	if err != nil {
		return err
	}
	if err := s.strike(ctx); err != nil {
		return err
	}
	if err := s.createPaged(ctx, pageName(paged)); err != nil {
		return err
	}
	gone := func(ctx context.Context) error { return objects.remove(ctx, pageName(paged-1)) }
	if err := persist(ctx, gone, removed); err != nil {
		return err
	}
	names := namesOf(first.Items)
	for page := first; page.Continue != ""; names = append(names, namesOf(page.Items)...) {
		if page, err = s.page(ctx, page.Continue); err != nil {
			return err
		}
		if page.ResourceVersion != first.ResourceVersion {
			return fmt.Errorf("a page is of %s and the first of %s", page.ResourceVersion, first.ResourceVersion)
		}
	}
	if !slices.Equal(names, expected) {
		return fmt.Errorf("the pages hold %v, not %v", names, expected)
	}
	expected[paged-1] = pageName(paged)
	return s.pagedByPager(ctx, expected)
}

func (s *stage) createPaged(ctx context.Context, name string) error {
	object := configMap(name, 0)
	object.Labels = map[string]string{"paged": "yes"}
	return persist(ctx, func(ctx context.Context) error {
		_, err := s.client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
		return err
	}, created)
}

func (s *stage) page(ctx context.Context, token string) (page *corev1.ConfigMapList, err error) {
	options := metav1.ListOptions{LabelSelector: "paged=yes", Limit: pageSize, Continue: token}
	err = persist(ctx, func(ctx context.Context) error {
		page, err = s.client.CoreV1().ConfigMaps(namespace).List(ctx, options)
		return err
	}, func(error) bool { return false })
	if err == nil && len(page.Items) > pageSize {
		err = fmt.Errorf("a page of %d has %d objects", pageSize, len(page.Items))
	}
	return page, err
}

// pagedByPager has the library turn the pages.
func (s *stage) pagedByPager(ctx context.Context, expected []string) error {
	lists := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return s.page(ctx, options.Continue)
	}))
	lists.PageSize = pageSize
	var names []string
	err := lists.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		names = append(names, object.(*corev1.ConfigMap).Name)
		return nil
	})
	if err == nil && !slices.Equal(names, expected) {
		err = fmt.Errorf("the pager found %v, not %v", names, expected)
	}
	return err
}

func namesOf(objects []corev1.ConfigMap) (names []string) {
	for _, object := range objects {
		names = append(names, object.Name)
	}
	return names
}

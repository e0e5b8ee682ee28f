// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/test/cluster/judge"
)

// observer follows what the API says about nodes, and about its own address.
type observer struct {
	mu       sync.Mutex
	renewals map[string][]time.Time
	unready  []judge.Unready
	endpoint []endpointChange
}

// endpointChange is a moment since which default/kubernetes has endpoints, or
// has none.
type endpointChange struct {
	time  time.Time
	empty bool
}

// observe begins to follow, and returns once it knows how things are.
func observe(ctx context.Context, client kubernetes.Interface) (*observer, error) {
	o := &observer{renewals: map[string][]time.Time{}}
	own := fields.OneTermEqualSelector("metadata.name", "kubernetes")
	core, leases, slices := client.CoreV1().RESTClient(), client.CoordinationV1().RESTClient(), client.DiscoveryV1().RESTClient()
	synced := cache.WaitForCacheSync(ctx.Done(),
		follow(ctx, cache.NewListWatchFromClient(core, "nodes", metav1.NamespaceAll, fields.Everything()), o.sawNode),
		follow(ctx, cache.NewListWatchFromClient(leases, "leases", corev1.NamespaceNodeLease, fields.Everything()), o.sawLease),
		follow(ctx, cache.NewListWatchFromClient(slices, "endpointslices", metav1.NamespaceDefault, own), o.sawSlice))
	if !synced {
		return nil, context.Cause(ctx)
	}
	return o, nil
}

// follow tells each state that an object has.
func follow[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, source cache.ListerWatcher, saw func(P)) cache.InformerSynced {
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    P(new(T)),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { saw(object.(P)) },
			UpdateFunc: func(_, object any) { saw(object.(P)) },
		},
	})
	go controller.RunWithContext(ctx)
	return controller.HasSynced
}

func (o *observer) sawNode(node *corev1.Node) {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i >= 0 && node.Status.Conditions[i].Status == corev1.ConditionTrue {
		return
	}
	u := judge.Unready{Node: node.Name, Time: time.Now(), Reason: "its kubelet has said nothing"}
	if i >= 0 {
		u.Reason = node.Status.Conditions[i].Message
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unready = append(o.unready, u)
}

func (o *observer) sawLease(lease *coordinationv1.Lease) {
	if lease.Spec.RenewTime == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	times := o.renewals[lease.Name]
	if renewed := lease.Spec.RenewTime.Time; len(times) == 0 || renewed.After(times[len(times)-1]) {
		o.renewals[lease.Name] = append(times, renewed)
	}
}

func (o *observer) sawSlice(slice *discoveryv1.EndpointSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	empty := len(slice.Endpoints) == 0
	if last := len(o.endpoint) - 1; last < 0 || o.endpoint[last].empty != empty {
		o.endpoint = append(o.endpoint, endpointChange{time.Now(), empty})
	}
}

// endpointSince is the first moment after another one since which
// default/kubernetes was empty, or was not.
func (o *observer) endpointSince(after time.Time, empty bool) (time.Time, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, change := range o.endpoint {
		if change.empty == empty && change.time.After(after) {
			return change.time, nil
		}
	}
	return time.Time{}, errors.New("no such change was seen")
}

// note adds what was seen to the facts.
func (o *observer) note(facts *judge.Facts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	facts.Unready = slices.Clone(o.unready)
	facts.Renewals = map[string][]time.Time{}
	for node, times := range o.renewals {
		facts.Renewals[node] = slices.Clone(times)
	}
}

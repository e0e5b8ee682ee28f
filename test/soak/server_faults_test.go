// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/test/kube"
)

// readerBinding gives the agent's user what the agent's service account has.
var readerBinding = &rbacv1.ClusterRoleBinding{
	ObjectMeta: metav1.ObjectMeta{Name: "reader"},
	RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fairlead"},
	Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kube.Limited}},
}

// bind lets the agent's user read what it must.
func (w *world) bind() {
	w.write("give the agent its permission", func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, readerBinding, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// gracePeriod is how long a server may take to end before it is killed. It
// would wait for a minute for those that watch.
const gracePeriod = time.Second

// pickServer picks a server that runs.
func (w *world) pickServer() *server {
	var up []*server
	for _, s := range w.servers {
		if s.up {
			up = append(up, s)
		}
	}
	return up[w.rand.IntN(len(up))]
}

// crash kills a server, and returns what starts it again.
func (w *world) crash(s *server) (heal func()) {
	s.up = false
	w.noteServers()
	s.StopAPIServer()
	return func() {
		s.StartAPIServer()
		s.up = true
		w.noteServers()
	}
}

// terminate asks a server to end, and returns what starts it again.
func (w *world) terminate(s *server) (heal func()) {
	s.up = false
	w.noteServers()
	s.TerminateAPIServer()
	return func() {
		select {
		case <-s.Done():
		case <-time.After(gracePeriod):
		}
		w.crash(s)()
	}
}

// serverFaults are what can happen to the API servers, and to what they say.
func serverFaults() []action {
	one := func(name string, weight int, end func(*world, *server) func()) action {
		return action{name: name, weight: weight, can: (*world).apiUp, do: func(w *world) func() { return end(w, w.pickServer()) }}
	}
	return []action{
		one("API server killed", 2, (*world).crash),
		one("API server terminated", 2, (*world).terminate),
		{name: "both API servers killed", weight: 1, can: func(w *world) bool { return w.servers[0].up && w.servers[1].up }, do: func(w *world) func() {
			first, second := w.crash(w.servers[0]), w.crash(w.servers[1])
			return func() { first(); second() }
		}},
		{name: "default/kubernetes emptied", weight: 3, can: (*world).apiUp, do: func(w *world) func() {
			w.emptyKubernetes()
			return nil
		}},
		{name: "permission taken away", weight: 2, writes: true, can: (*world).apiUp, do: func(w *world) func() {
			w.write("delete the agent's permission", func(ctx context.Context, c kubernetes.Interface) error {
				return ignoreMissing(c.RbacV1().ClusterRoleBindings().Delete(ctx, "reader", metav1.DeleteOptions{}))
			})
			// Who watches goes on watching; who connects anew is refused.
			w.breakConnections()
			return w.bind
		}},
	}
}

// emptyKubernetes takes all endpoints from default/kubernetes, as an API server
// does that stops. A server that runs puts its own back in some seconds.
func (w *world) emptyKubernetes() {
	w.write("empty default/kubernetes", func(ctx context.Context, c kubernetes.Interface) error {
		endpoints, err := c.CoreV1().Endpoints(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return ignoreMissing(err)
		}
		endpoints.Subsets = nil
		_, err = c.CoreV1().Endpoints(metav1.NamespaceDefault).Update(ctx, endpoints, metav1.UpdateOptions{})
		return err
	})
	w.write("empty the slice of default/kubernetes", func(ctx context.Context, c kubernetes.Interface) error {
		slice, err := c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return ignoreMissing(err)
		}
		slice.Endpoints, slice.Ports = nil, nil
		_, err = c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(ctx, slice, metav1.UpdateOptions{})
		return err
	})
}

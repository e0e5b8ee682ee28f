// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/test/kube"
)

// cutting is a way to an API server that breaks the first time that somebody
// asks for the second page of a list.
type cutting struct {
	http.RoundTripper
	cut *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (c cutting) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("continue") != "" && c.cut.CompareAndSwap(false, true) {
		return nil, io.ErrUnexpectedEOF
	}
	return c.RoundTripper.RoundTrip(request)
}

func TestAListThatBreaksOffAndIsAskedForAgainIsOne(t *testing.T) {
	cluster := kube.Start(t)
	var objects strings.Builder
	for i := range pageSize + 1 {
		fmt.Fprintf(&objects, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: default}}\n", i)
	}
	cluster.Apply(objects.String())
	var cut atomic.Bool
	config := rest.CopyConfig(cluster.REST)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return cutting{inner, &cut} })
	r := record(t, cluster.APIServer, Config{REST: config, Only: true, Kinds: []string{"configmaps"}, Namespaces: []string{"default"}})
	r.listed(t, "configmaps in default")
	r.stop(t)
	if !cut.Load() || r.log.count("cannot follow") == 0 {
		t.Fatal("nothing broke")
	}
	lists := r.lists(t, "configmaps")
	if len(lists) != 1 || lists[0].Ended.IsZero() || lists[0].Namespace != "default" || !strings.Contains(lists[0].Reason, "unexpected EOF") {
		t.Fatalf("%+v", lists)
	}
	events := r.events(t, journal.Filter{Names: []string{"c0", fmt.Sprint("c", pageSize)}})
	if len(events) != 2 || events[0].List != lists[0].ID || events[1].List != lists[0].ID || lists[0].Objects <= pageSize {
		t.Errorf("%+v, events %v", lists[0], events)
	}
	if got := len(r.listEvents(t, lists[0])); got != lists[0].Objects {
		t.Errorf("%d events of %d objects", got, lists[0].Objects)
	}
}

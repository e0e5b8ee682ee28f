// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsAddress is the Service of the metrics-server in testdata, and port 443.
const metricsAddress = "10.96.0.50"

// serveMetrics answers at the address of the metrics-server's Service, so that its
// group of the API is there: a group that is down would leave every judgement
// incomplete, which another test is for. There are no metrics.
func (c *cluster) serveMetrics(t *testing.T) {
	t.Helper()
	c.ns.Addr(t, "lo", metricsAddress+"/32")
	var listener net.Listener
	var err error
	c.ns.Do(func() { listener, err = net.Listen("tcp", metricsAddress+":443") })
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(answerMetrics))
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
}

func answerMetrics(w http.ResponseWriter, r *http.Request) {
	const group = "metrics.k8s.io"
	version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1beta1", Version: "v1beta1"}
	reads := metav1.Verbs{"get", "list"}
	answers := map[string]any{
		"/apis/" + group: metav1.APIGroup{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: group,
			Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		},
		"/apis/" + group + "/v1beta1": metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.GroupVersion,
			APIResources: []metav1.APIResource{
				{Name: "nodes", Kind: "NodeMetrics", Verbs: reads}, {Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: reads},
			},
		},
		"/apis/" + group + "/v1beta1/nodes": metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}},
		"/apis/" + group + "/v1beta1/pods":  metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}},
	}
	answer, has := answers[r.URL.Path]
	if !has {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who went away reads nothing
}

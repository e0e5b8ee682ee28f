// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/http"
	"strings"
)

// Compact lets etcd forget all versions before one, as the API servers do every
// few minutes: what is asked for of an older one has expired.
func (c *Cluster) Compact(resourceVersion string) {
	c.t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"revision":%q,"physical":true}`, resourceVersion))
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.etcdURL+"/v3/kv/compaction", body)
	if err != nil {
		c.t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if c.ns != nil {
		transport.DialContext = c.dial
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		c.t.Fatalf("compact etcd: %v", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		c.t.Fatalf("compact etcd: %s", response.Status)
	}
}

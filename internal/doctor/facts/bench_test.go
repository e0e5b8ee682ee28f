// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// large is a cluster of some Services with four endpoints each, and their pods.
func large(services int) []evidence.Record {
	var all, slices, pods []string
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		all = append(all, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":"shop","uid":"0c5e9f5e-6d4e-4b4a-8f51-6a4f5a3b2c1d","labels":{"app":%q}},"spec":{"clusterIP":"10.%d.%d.%d","ports":[{"name":"http","port":80,"protocol":"TCP","targetPort":8080}],"selector":{"app":%q}}}`,
			name, name, 1+i>>16, i>>8&255, i&255, name))
		var endpoints []string
		for e := range 4 {
			address := fmt.Sprintf("10.1%d.%d.%d", e, i>>8&255, i&255)
			endpoints = append(endpoints, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node-%d","targetRef":{"kind":"Pod","name":"%s-%d"}}`, address, e, name, e))
			pods = append(pods, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s-%d","namespace":"shop","labels":{"app":%q}},"spec":{"nodeName":"node-%d","containers":[{"name":"web","image":"registry.example.org/web:1.0","args":["--port=8080"],"env":[{"name":"MODE","value":"a"}],"ports":[{"containerPort":8080}]}]},"status":{"phase":"Running","podIP":%q,"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"web","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-03T12:00:00Z"}}}]}}`, name, e, name, e, address))
		}
		slices = append(slices, fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","metadata":{"name":"%s-x","namespace":"shop","labels":{"kubernetes.io/service-name":%q}},"endpoints":[%s],"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`,
			name, name, strings.Join(endpoints, ",")))
	}
	list := func(resource string, items []string) evidence.Record {
		return objects(resource, `{"apiVersion":"v1","kind":"List","items":[`+strings.Join(items, ",\n")+`]}`)
	}
	return []evidence.Record{list("services", all), list("endpointslices", slices), list("pods", pods)}
}

// Budget: 1 s for the objects of 5000 Services with 20000 pods on one core.
func BenchmarkRead(b *testing.B) {
	records := large(5000)
	size := 0
	for i := range records {
		size += len(records[i].Content)
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		if c := read(records...); c.Last().World("node-1", PlaneKubeProxy) == nil || len(c.Unread) > 0 {
			b.Fatal(c.Unread)
		}
	}
}

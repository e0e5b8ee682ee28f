// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/fairlead-io/fairlead/test/lab"
)

// follows are what Cilium's agent lists and watches, as far as an API server
// without Cilium's own operator has it.
func follows() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "pods"},
		{Version: "v1", Resource: "namespaces"},
		{Version: "v1", Resource: "nodes"},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		{Group: "cilium.io", Version: "v2", Resource: "ciliumendpoints"},
		{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"},
	}
}

// agentRole is the process that stands in for Cilium's agent: client-go's own
// reflectors, with the token of the agent's account, and their log.
const agentRole = "cilium-agent"

// agent follows what it must, and logs as client-go does. What it is told of goes
// to the log as well.
func agent(args []string) error {
	server, ca, tokenFile := args[0], args[1], args[2]
	client, err := dynamic.NewForConfig(&rest.Config{
		Host: server, BearerTokenFile: tokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}, QPS: -1,
	})
	if err != nil {
		return err
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(os.Stderr)))
	ctx := klog.NewContext(context.Background(), logger)
	for _, resource := range follows() {
		store := &told{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), resource: resource.Resource, log: logger}
		r := cache.NewReflectorWithOptions(listWatch(client.Resource(resource)), &unstructured.Unstructured{}, store,
			cache.ReflectorOptions{TypeDescription: resource.Resource})
		go r.RunWithContext(ctx)
	}
	select {}
}

// watchSeconds is for how long a watch goes on. An API server ends those of
// client-go after five to ten minutes, and only then asks again who may watch.
const watchSeconds = 2

func listWatch(client dynamic.ResourceInterface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.TimeoutSeconds = new(int64(watchSeconds))
			return client.Watch(ctx, options)
		},
	}
}

// told logs what an agent hears.
type told struct {
	cache.Store
	resource string
	log      klog.Logger
}

// Replace implements cache.Store.
func (s *told) Replace(list []any, version string) error {
	s.log.Info("Listed", "resource", s.resource, "objects", len(list))
	return s.Store.Replace(list, version)
}

// Add implements cache.Store.
func (s *told) Add(object any) error {
	if o, is := object.(*unstructured.Unstructured); is {
		s.log.Info("Added", "resource", s.resource, "object", klog.KObj(o))
	}
	return s.Store.Add(object)
}

// startAgent starts the agent, and waits until it knows the cluster.
func (c *cluster) startAgent(t *testing.T) *lab.Process {
	t.Helper()
	token := t.TempDir() + "/token"
	if err := os.WriteFile(token, bytes.TrimSpace([]byte(c.Kubectl("--namespace", "kube-system", "create", "token", "cilium"))), 0o600); err != nil {
		t.Fatal(err)
	}
	p := lab.Place{NetNS: c.ns}.StartRole(t, agentRole, c.URL, c.CAFile, token)
	said(t, p, "the agent lists all that it follows", func(log string) bool {
		for _, r := range follows() {
			if !strings.Contains(log, fmt.Sprintf(`"Listed" resource=%q`, r.Resource)) {
				return false
			}
		}
		return true
	})
	return p
}

// said waits until something is so of a process's log. A client that was refused
// waits for up to half a minute before it asks again.
func said(t *testing.T, p *lab.Process, what string, so func(log string) bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !so(p.Stderr()); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is never so that %s:\n%s", what, p.Stderr())
		}
	}
}

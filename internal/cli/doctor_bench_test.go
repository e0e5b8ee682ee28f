// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkDoctorIncidents has a budget of 2 s: from the folder to the page.
func BenchmarkDoctorIncidents(b *testing.B) {
	for _, name := range []string{"incident-1", "incident-2"} {
		b.Run(name, func(b *testing.B) {
			examineBundle(b, filepath.Join(examplesDir, "incidents", name), exitFindings)
		})
	}
}

// BenchmarkDoctorLarge has a budget of 5 s: 10 000 Services of two endpoints in
// three layers, the agent's, the kernel's and the API's, and nothing wrong.
func BenchmarkDoctorLarge(b *testing.B) {
	folder := b.TempDir()
	for sample := 1; sample <= 2; sample++ {
		writeLargeSample(b, filepath.Join(folder, fmt.Sprint(sample)), 10_000)
	}
	examineBundle(b, folder, exitFine)
}

func examineBundle(b *testing.B, path string, want int) {
	for b.Loop() {
		var out, errOut bytes.Buffer
		if status := Main(b.Context(), []string{"fairlead", "doctor", "--bundle", path}, nil, &out, &errOut); status != want {
			b.Fatalf("exit status %d, want %d: %s%s", status, want, &out, &errOut)
		}
	}
}

// writeLargeSample writes what the API and a Cilium agent would say of n
// Services.
func writeLargeSample(b *testing.B, folder string, n int) {
	var services, slices []runtime.Object
	var frontends, kernel bytes.Buffer
	frontends.WriteString("Address   Type   ServiceName   PortName   Backends   RedirectTo   Status   Since   Error\n")
	kernel.WriteString("SERVICE ADDRESS   BACKEND ADDRESS (REVNAT_ID) (SLOT)\n")
	for i := range n {
		name, high, low := fmt.Sprintf("s%05d-web", i), i/250, i%250
		vip := fmt.Sprintf("10.96.%d.%d", high, low)
		one, two := fmt.Sprintf("10.1.%d.%d", high, low), fmt.Sprintf("10.2.%d.%d", high, low)
		services = append(services, largeService(name, vip))
		slices = append(slices, largeSlice(name, one, two))
		fmt.Fprintf(&frontends, "%s:80/TCP   ClusterIP   shop/%s   http   %s:8080/TCP, %s:8080/TCP      Done   1h\n", vip, name, one, two)
		fmt.Fprintf(&kernel, "%s:80/TCP (0)   0.0.0.0:0 (%d) (0) [ClusterIP, non-routable]\n", vip, i+1)
		fmt.Fprintf(&kernel, "%s:80/TCP (1)   %s:8080/TCP (%d) (1)\n%s:80/TCP (2)   %s:8080/TCP (%d) (2)\n", vip, one, i+1, vip, two, i+1)
	}
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	}
	for path, content := range map[string][]byte{
		"objects/services.json":                        listOf(b, services),
		"objects/endpointslices.discovery.k8s.io.json": listOf(b, slices),
		"objects/nodes.json":                           listOf(b, []runtime.Object{node}),
		"nodes/n1/dump-cilium-frontends.txt":           frontends.Bytes(),
		"nodes/n1/dump-cilium-maps.txt":                kernel.Bytes(),
	} {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

func listOf(b *testing.B, items []runtime.Object) []byte {
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func largeService(name, vip string) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func largeSlice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name + "-x7k2p", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

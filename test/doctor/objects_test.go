// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// The nodes: here runs the proxy, there is an object only.
const (
	here, there         = "node", "other"
	here4, here6        = "192.0.2.1", "2001:db8::1"
	there4, there6      = "192.0.2.2", "2001:db8::2"
	zoneHere, zoneThere = "a", "b"
)

// workload is a Service and the pods behind it, as controllers would make them.
type workload struct {
	name string
	// pods by state; those at even places are on this node.
	ready, unready, leaving int
	ports                   []corev1.ServicePort // none: port 80
	spec                    func(*corev1.ServiceSpec)
	ingress                 []string // what a load balancer gave to it
	hints                   bool     // each endpoint is for its own zone
}

// objects makes objects of the API.
type objects struct {
	t      *testing.T
	client kubernetes.Interface
	next   int // the last number that a pod's address has
}

func (o *objects) must(err error) {
	o.t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		o.t.Fatal(err)
	}
}

// nodes makes the nodes, and what the pods of the tests need.
func (o *objects) nodes() {
	for _, n := range []struct{ name, v4, v6, zone string }{{here, here4, here6, zoneHere}, {there, there4, there6, zoneThere}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			corev1.LabelHostname: n.name, corev1.LabelTopologyZone: n.zone}}}
		_, err := o.client.CoreV1().Nodes().Create(o.ctx(), node, metav1.CreateOptions{})
		o.must(err)
		node.Status = corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.v4}, {Type: corev1.NodeInternalIP, Address: n.v6}, {Type: corev1.NodeHostName, Address: n.name}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}
		_, err = o.client.CoreV1().Nodes().UpdateStatus(o.ctx(), node, metav1.UpdateOptions{})
		o.must(err)
	}
	o.namespace(metav1.NamespaceDefault)
}

// namespace makes a namespace, and the service account that pods in it have.
func (o *objects) namespace(name string) {
	_, err := o.client.CoreV1().Namespaces().Create(o.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	o.must(err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = o.client.CoreV1().ServiceAccounts(name).Create(o.ctx(), account, metav1.CreateOptions{})
	o.must(err)
}

func (o *objects) ctx() context.Context { return o.t.Context() }

// create makes a Service, its pods, and the slices that name them.
func (o *objects) create(namespace string, w workload) {
	o.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": w.name}, Ports: w.ports},
	}
	if len(w.ports) == 0 {
		service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}
	}
	if w.spec != nil {
		w.spec(&service.Spec)
	}
	service, err := o.client.CoreV1().Services(namespace).Create(o.ctx(), service, metav1.CreateOptions{})
	o.must(err)
	if len(w.ingress) > 0 {
		for _, ip := range w.ingress {
			service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		service, err = o.client.CoreV1().Services(namespace).UpdateStatus(o.ctx(), service, metav1.UpdateOptions{})
		o.must(err)
	}
	pods := o.pods(namespace, service, w)
	for _, family := range service.Spec.IPFamilies {
		o.slice(namespace, service, family, pods, w.hints)
	}
}

// pods makes those of a workload, each with an address of either family.
func (o *objects) pods(namespace string, service *corev1.Service, w workload) (pods []*corev1.Pod) {
	for i := range w.ready + w.unready + w.leaving {
		o.next++
		node := []string{here, there}[i%2]
		network := []int{1, 2}[i%2]
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.name, i), Labels: service.Spec.Selector},
			Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: new(int64(3600)),
				Containers: []corev1.Container{{Name: "app", Image: "app", Ports: containerPorts(service.Spec.Ports)}}},
		}
		pod, err := o.client.CoreV1().Pods(namespace).Create(o.ctx(), pod, metav1.CreateOptions{})
		o.must(err)
		ready := corev1.ConditionTrue
		if i >= w.ready && i < w.ready+w.unready {
			ready = corev1.ConditionFalse
		}
		v4, v6 := fmt.Sprintf("10.244.%d.%d", network, o.next), fmt.Sprintf("fd00:10:244:%d::%x", network, o.next)
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: v4, PodIPs: []corev1.PodIP{{IP: v4}, {IP: v6}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: ready == corev1.ConditionTrue, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		}
		pod, err = o.client.CoreV1().Pods(namespace).UpdateStatus(o.ctx(), pod, metav1.UpdateOptions{})
		o.must(err)
		if i >= w.ready+w.unready {
			o.must(o.client.CoreV1().Pods(namespace).Delete(o.ctx(), pod.Name, metav1.DeleteOptions{}))
			pod, err = o.client.CoreV1().Pods(namespace).Get(o.ctx(), pod.Name, metav1.GetOptions{})
			o.must(err)
		}
		pods = append(pods, pod)
	}
	return pods
}

func containerPorts(ports []corev1.ServicePort) (all []corev1.ContainerPort) {
	for _, p := range ports {
		all = append(all, corev1.ContainerPort{Name: p.TargetPort.StrVal, ContainerPort: targetOf(p), Protocol: p.Protocol})
	}
	return all
}

// namedPort is what a port of a container is that a Service calls by its name.
const namedPort = 9090

func targetOf(p corev1.ServicePort) int32 {
	switch {
	case p.TargetPort.StrVal != "":
		return namedPort
	case p.TargetPort.IntVal != 0:
		return p.TargetPort.IntVal
	}
	return p.Port
}

// slice makes what names the pods in one family.
func (o *objects) slice(namespace string, service *corev1.Service, family corev1.IPFamily, pods []*corev1.Pod, hints bool) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: service.Name + "-" + string(family[3]), Labels: map[string]string{
			discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressType(family),
	}
	for _, p := range service.Spec.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(targetOf(p)), Protocol: new(p.Protocol)})
	}
	for _, pod := range pods {
		ready := pod.Status.Conditions[0].Status == corev1.ConditionTrue
		leaving := pod.DeletionTimestamp != nil
		zone := map[string]string{here: zoneHere, there: zoneThere}[pod.Spec.NodeName]
		e := discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIPs[map[corev1.IPFamily]int{corev1.IPv4Protocol: 0, corev1.IPv6Protocol: 1}[family]].IP},
			NodeName:  new(pod.Spec.NodeName), Zone: new(zone),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID},
			Conditions: discoveryv1.EndpointConditions{Ready: new(service.Spec.PublishNotReadyAddresses || ready && !leaving), Serving: new(ready), Terminating: new(leaving)},
		}
		if hints {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	_, err := o.client.DiscoveryV1().EndpointSlices(namespace).Create(o.ctx(), s, metav1.CreateOptions{})
	o.must(err)
}

// remove deletes all that is in a namespace.
func (o *objects) remove(namespace string) {
	everything, now := metav1.ListOptions{}, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	o.must(o.client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(o.ctx(), now, everything))
	o.must(o.client.CoreV1().Pods(namespace).DeleteCollection(o.ctx(), now, everything))
	services, err := o.client.CoreV1().Services(namespace).List(o.ctx(), everything)
	o.must(err)
	for _, s := range services.Items {
		o.must(o.client.CoreV1().Services(namespace).Delete(o.ctx(), s.Name, now))
	}
}

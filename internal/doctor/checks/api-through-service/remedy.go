// SPDX-License-Identifier: Apache-2.0

package apithroughservice

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/bugs"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// address is one of the API server that no data plane translates.
type address struct {
	host, port string
	// text says what it is; it is a sentence.
	text string
}

// remedies say which address to take instead: the distribution's own, else one of
// the API server itself.
func remedies(o *facts.Objects, w way, service services.Service) []doctor.Remedy {
	servers := servers(o, service)
	a, known := ofDistribution(o, servers)
	if !known {
		a, known = direct(servers)
	}
	if !known {
		a = address{text: "Take an address that the nodes reach without any Service: that of a load balancer outside of the cluster, or of a proxy that runs on each node."}
	}
	return []doctor.Remedy{w.move(a)}
}

// move is how a component is given another address. Without a host there are no
// commands: somebody has to find it first.
func (w way) move(a address) doctor.Remedy {
	r := doctor.Remedy{Text: a.text}
	namespace, name, _ := strings.Cut(w.workload, "/")
	switch {
	case a.host == "":
	case w.plane == facts.PlaneKubeProxy:
		r.Commands = []string{
			doctor.Kubectl(namespace, "get", "configmap", "kube-proxy", "--output", "yaml") +
				" | " + printable.Command("sed", "s|server: https://.*|server: https://"+net.JoinHostPort(a.host, a.port)+"|") +
				" | kubectl apply --filename -",
			doctor.Kubectl(namespace, "rollout", "restart", "daemonset/"+name),
		}
	default:
		r.Commands = []string{
			bugs.SetCilium(namespace, w.version, "k8sServiceHost="+a.host, "k8sServicePort="+a.port),
			doctor.Kubectl(namespace, "rollout", "restart", "daemonset/"+name),
		}
	}
	return r
}

// distribution is how a cluster is known, and where its nodes find the API
// server without any Service.
type distribution struct {
	is func(*corev1.Node) bool
	at address
}

func distributions() []distribution {
	return []distribution{
		{image("Talos"), address{"localhost", "7445", "On Talos, KubePrism listens on every node at localhost:7445, and leads to all API servers (machine.features.kubePrism)."}},
		{version("+rke2"), address{"127.0.0.1", "6443", "On RKE2, every node has a load balancer to the API servers at 127.0.0.1:6443. Where RKE2 installs Cilium, put the values into the HelmChartConfig rke2-cilium."}},
		{version("+k3s"), address{"127.0.0.1", "6444", "On K3s, every agent has a load balancer to the API servers at 127.0.0.1:6444."}},
		{version("+k0s"), address{text: "On k0s, turn node-local load balancing on (spec.network.nodeLocalLoadBalancing): workers then have the API server at localhost:7443. Else take the address of the controllers' load balancer (spec.api.externalAddress)."}},
		{version("-eks-"), address{text: "On EKS, take the cluster's endpoint, a name outside of the cluster: aws eks describe-cluster prints it as cluster.endpoint; the port is 443. With private access on, it leads to addresses in the VPC."}},
		{label("kubernetes.azure.com/cluster"), address{text: "On AKS, take the name of the API server: az aks show prints it as fqdn, or privateFqdn of a private cluster; the port is 443."}},
		{version("-gke."), address{text: "On GKE, take the control plane's endpoint: gcloud container clusters describe prints it as privateClusterConfig.privateEndpoint or endpoint; the port is 443."}},
		{label("kops.k8s.io/instancegroup"), address{text: "On kOps, take api.internal.CLUSTER, which kOps keeps in DNS for the nodes; the port is 443. kOps sets it itself where it installs Cilium."}},
		{image("CoreOS"), address{text: "On OpenShift, take api-int.CLUSTER.DOMAIN, port 6443: a load balancer that every node reaches without any Service."}},
	}
}

func image(name string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool { return strings.Contains(n.Status.NodeInfo.OSImage, name) }
}

func version(part string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool { return strings.Contains(n.Status.NodeInfo.KubeletVersion, part) }
}

func label(name string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool { return n.Labels[name] != "" }
}

// ofDistribution is the address that the cluster's distribution offers, if it is
// known by its nodes, or by what kubeadm left.
func ofDistribution(o *facts.Objects, servers []netip.AddrPort) (address, bool) {
	for _, n := range o.Nodes {
		if version("-tke.")(n) || strings.HasPrefix(n.Spec.ProviderID, "qcloud:") {
			return ofTKE(servers)
		}
		for _, d := range distributions() {
			if d.is(n) {
				return d.at, true
			}
		}
	}
	return ofKubeadm(o)
}

// ofTKE is the endpoint of default/kubernetes: there an address of its own leads
// to the API servers, and stays for as long as the cluster.
func ofTKE(servers []netip.AddrPort) (address, bool) {
	if len(servers) != 1 {
		return address{}, false
	}
	a, _ := direct(servers)
	a.text = "On TKE, take the endpoint of default/kubernetes: a link-local address outside of all Services, which leads to the API servers and does not change."
	return a, true
}

// hostPattern and portPattern are what may stand in a command that people paste.
var (
	hostPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:-]*$`)
	portPattern = regexp.MustCompile(`^[0-9]{1,5}$`)
)

// ofKubeadm is what the control plane was set up with.
func ofKubeadm(o *facts.Objects) (address, bool) {
	config := facts.Find[corev1.ConfigMap](o, "kube-system/kubeadm-config")
	if config == nil {
		return address{}, false
	}
	var cluster struct {
		ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	}
	if err := yaml.Unmarshal([]byte(config.Data["ClusterConfiguration"]), &cluster); err != nil || cluster.ControlPlaneEndpoint == "" {
		return address{}, false
	}
	host, port, err := net.SplitHostPort(cluster.ControlPlaneEndpoint)
	if err != nil {
		host, port = cluster.ControlPlaneEndpoint, "6443"
	}
	if !hostPattern.MatchString(host) || !portPattern.MatchString(port) {
		return address{}, false
	}
	if _, own := behind(o, services.All(o), host, port); own {
		return address{}, false
	}
	return address{host, port, fmt.Sprintf("kubeadm set the cluster up with %s as the address of its control plane.", cluster.ControlPlaneEndpoint)}, true
}

// servers are the addresses of the API servers: those of their own Service, or
// while it has none, those of the Service that leads to them.
func servers(o *facts.Objects, service services.Service) []netip.AddrPort {
	if own, found := services.Find(services.All(o), kubernetes); found && len(own.Ready()) > 0 {
		return own.Ready()
	}
	return service.Ready()
}

// direct is the API server's own address, where there is one only: of several,
// each goes with its machine.
func direct(servers []netip.AddrPort) (address, bool) {
	switch len(servers) {
	case 0:
		return address{}, false
	case 1:
		return address{servers[0].Addr().String(), strconv.Itoa(int(servers[0].Port())), fmt.Sprintf("The API server itself is at %s.", servers[0])}, true
	}
	return address{text: fmt.Sprintf("The API servers themselves are at %s; put a load balancer outside of the cluster in front of them, or a proxy on each node, for one of these addresses goes with its machine.", texts(servers))}, true
}

func texts(all []netip.AddrPort) string {
	const most = 5
	var out []string
	for _, a := range all[:min(most, len(all))] {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

// SPDX-License-Identifier: Apache-2.0

package apithroughservice

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

// way is where a component is told that the API server is.
type way struct {
	component  string // NAMESPACE/SERVICEACCOUNT
	workload   string // NAMESPACE/NAME of its DaemonSet
	plane      facts.DataPlane
	version    string // "" if it is not known, or not the same everywhere
	node       string // "" is all of them
	host, port string
	how        string // a sentence
	// returns is that it goes back to other addresses when it is restarted.
	returns bool
	shown   []doctor.Evidence
}

const (
	agentContainer = "cilium-agent"
	ciliumConfig   = "cilium-config"
	hostVariable   = "KUBERNETES_SERVICE_HOST"
	portVariable   = "KUBERNETES_SERVICE_PORT"
)

// ways are those that are known. What an agent logged counts only where its
// DaemonSet is not known: it may be of another time.
func ways(c *facts.Case, all []services.Service) []way {
	o := c.Last().Objects
	if o == nil {
		return nil
	}
	var out []way
	known := false
	for _, d := range o.DaemonSets {
		if agent := container(d, agentContainer); agent != nil {
			known = true
			out = append(out, ofCilium(o, all, d, agent)...)
		}
	}
	out = append(out, ofKubeProxy(o)...)
	if !known {
		out = append(out, ofStatus(c.Last())...)
		out = append(out, ofLogs(c.Logs)...)
	}
	return out
}

func container(d *appsv1.DaemonSet, name string) *corev1.Container {
	for i := range d.Spec.Template.Spec.Containers {
		if c := &d.Spec.Template.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// replacesKubeProxy says whether Cilium does all that kube-proxy would, and
// whether that is known.
func replacesKubeProxy(s *facts.Sample) (replaces, known bool) {
	for _, n := range s.Nodes {
		if n.Cilium != nil && n.Cilium.Status != nil && n.Cilium.Status.KubeProxyReplacement != "" {
			return cilium.ReplacesKubeProxy(n.Cilium.Status.KubeProxyReplacement), true
		}
	}
	for _, m := range s.Objects.ConfigMaps {
		if word, given := m.Data["kube-proxy-replacement"]; given && m.Name == ciliumConfig {
			return cilium.ReplacesKubeProxy(word), true
		}
	}
	return false, false
}

// ofCilium is what an agent is told by its flags, else by the variables of its
// container, else by those that every container has.
func ofCilium(o *facts.Objects, all []services.Service, d *appsv1.DaemonSet, agent *corev1.Container) []way {
	w := way{
		component: d.Namespace + "/" + cmp.Or(d.Spec.Template.Spec.ServiceAccountName, d.Name),
		workload:  d.Namespace + "/" + d.Name, plane: facts.PlaneCilium,
	}
	config := facts.Find[corev1.ConfigMap](o, d.Namespace+"/"+ciliumConfig)
	if config != nil {
		for _, key := range []string{"k8s-api-server", "k8s-api-server-urls"} {
			if value := config.Data[key]; value != "" {
				w.shown = []doctor.Evidence{doctor.Excerpt(o.Record(config), fmt.Sprintf("%s/%s: %s: %s", config.Namespace, config.Name, key, value))}
				return w.told(all, key, strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' }))
			}
		}
	}
	host, from := variable(o, d.Namespace, agent, hostVariable)
	port, _ := variable(o, d.Namespace, agent, portVariable)
	switch {
	case host != "":
		w.host, w.port = host, cmp.Or(port, "443")
		w.how = fmt.Sprintf("DaemonSet %s says so by %s (k8sServiceHost).", w.workload, hostVariable)
		w.shown = []doctor.Evidence{doctor.Excerpt(o.Record(d), fmt.Sprintf("%s  %s: %s=%s %s=%s", w.workload, agentContainer, hostVariable, host, portVariable, w.port))}
		return []way{w}
	case from:
		return nil
	}
	w.how = fmt.Sprintf("DaemonSet %s names no address, so the agent takes that of %s, which every container is given.", w.workload, kubernetes)
	w.shown = []doctor.Evidence{doctor.Excerpt(o.Record(d), fmt.Sprintf("%s  %s: no %s", w.workload, agentContainer, hostVariable))}
	return w.inCluster(all)
}

// told is what an agent makes of URLs. Of several it takes any for a start, and
// the Service's address once it has heard of that.
func (w way) told(all []services.Service, key string, urls []string) []way {
	if len(urls) > 1 {
		w.how = fmt.Sprintf("It is given several URLs (%s), begins with one of them, and turns to %s once it knows that Service. It goes back to them only when it is restarted.", key, kubernetes)
		w.returns = true
		return w.inCluster(all)
	}
	w.how = fmt.Sprintf("It is told so by %s.", key)
	return w.at(urls[0])
}

func (w way) inCluster(all []services.Service) []way {
	s, found := services.Find(all, kubernetes)
	if !found || len(s.Addresses()) == 0 {
		return nil
	}
	first := s.Addresses()[0]
	w.host, w.port = first.Addr().String(), fmt.Sprint(first.Port())
	return []way{w}
}

// at fills in what a URL says; none if it does not say anything.
func (w way) at(text string) []way {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	w.host, w.port = u.Hostname(), cmp.Or(u.Port(), "443")
	return []way{w}
}

// variable is the value of a container's variable. from is that it has one whose
// value is not known.
func variable(o *facts.Objects, namespace string, c *corev1.Container, name string) (value string, from bool) {
	for _, e := range c.Env {
		if e.Name != name {
			continue
		}
		if e.ValueFrom == nil || e.ValueFrom.ConfigMapKeyRef == nil {
			return e.Value, e.Value == ""
		}
		ref := e.ValueFrom.ConfigMapKeyRef
		m := facts.Find[corev1.ConfigMap](o, namespace+"/"+ref.Name)
		if m == nil {
			return "", true
		}
		return m.Data[ref.Key], true
	}
	return "", false
}

// kubeconfig is the part of one that says where the API server is.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
		} `json:"cluster"`
	} `json:"clusters"`
}

func ofKubeProxy(o *facts.Objects) []way {
	config := facts.Find[corev1.ConfigMap](o, "kube-system/kube-proxy")
	if config == nil {
		return nil
	}
	text := cmp.Or(config.Data["kubeconfig.conf"], config.Data["kubeconfig"])
	k := kubeconfig{}
	if err := yaml.Unmarshal([]byte(text), &k); err != nil || len(k.Clusters) == 0 {
		return nil
	}
	server := k.Clusters[0].Cluster.Server
	w := way{
		component: "kube-system/kube-proxy", workload: "kube-system/kube-proxy", plane: facts.PlaneKubeProxy,
		how:   "The kubeconfig in its ConfigMap says so.",
		shown: []doctor.Evidence{doctor.Excerpt(o.Record(config), fmt.Sprintf("kube-system/kube-proxy: server: %s", server))},
	}
	return w.at(server)
}

// ofStatus is where agents fail to reach the API server, by their own word.
func ofStatus(s *facts.Sample) []way {
	var out []way
	for _, n := range s.Nodes {
		if n.Cilium == nil || n.Cilium.Status == nil {
			continue
		}
		if address := apiURL.FindString(n.Cilium.Status.KubernetesDetail); address != "" {
			w := way{component: account(n.Cilium.StatusRecord.Pod), workload: account(n.Cilium.StatusRecord.Pod), plane: facts.PlaneCilium, node: n.Name,
				how:   "The agent says so of the connection that fails.",
				shown: []doctor.Evidence{doctor.Excerpt(n.Cilium.StatusRecord, "Kubernetes: "+n.Cilium.Status.Kubernetes+" "+n.Cilium.Status.KubernetesDetail)}}
			out = append(out, w.at(address)...)
		}
	}
	return out
}

var (
	apiURL = regexp.MustCompile(`https://[^/"\s]+`)
	// establishing is what an agent logs when it dials, and where it does.
	establishing = regexp.MustCompile(`Establishing connection to apiserver.*(https://[^/"\s]+)`)
)

func ofLogs(logs []*facts.Log) []way {
	var out []way
	for _, l := range logs {
		for _, line := range l.Lines {
			m := establishing.FindStringSubmatch(line.Text)
			if m == nil {
				continue
			}
			w := way{component: account(l.Pod), workload: account(l.Pod), plane: facts.PlaneCilium, node: l.Node,
				how:   "The agent logs so when it starts.",
				shown: []doctor.Evidence{doctor.Excerpt(l.Record, line.Text)}}
			out = append(out, w.at(m[1])...)
			break
		}
	}
	return out
}

// namespacePattern is what may stand in a command that people paste: a pod's name
// may come from the name of a file.
var namespacePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// account is the service account that Cilium has where nobody gave it another.
func account(pod string) string {
	namespace, _, found := strings.Cut(pod, "/")
	if !found || !namespacePattern.MatchString(namespace) {
		namespace = "kube-system"
	}
	return namespace + "/cilium"
}

// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/printable"
)

// A sysdump is what `cilium sysdump` collects: objects of the API in files of
// their own, logs, and for each agent the folder of a cilium-bugtool, where a
// file holds the output of the command that it is named after. What the
// bugtool alone collects is read as well; then nothing says of which node it is.
type sysdump struct {
	pods map[string]sysdumpPod // by name: Cilium's are all in one namespace
}

type sysdumpPod struct {
	namespace, node string
	containers      []string
}

// stamp is the time in the names of a sysdump's files.
const stamp = `\d{8}-\d{6}`

var (
	sysdumpObjects = regexp.MustCompile(`^(k8s-[a-z]+|cilium[a-z-]+)-` + stamp + `\.yaml$`)
	sysdumpLog     = regexp.MustCompile(`^logs-([a-z0-9.-]+)-` + stamp + `(-prev)?\.log$`)
	// The program is called cilium up to 1.14, and cilium-dbg since.
	bugtoolOutput = regexp.MustCompile(`^(?:.*/)?cmd/cilium(?:-dbg)?-(.+)\.md$`)
	bugtoolOf     = regexp.MustCompile(`(?:^|/)cilium-bugtool-([a-z0-9-]+?)-` + stamp + `(?:/|$)`)
)

// sysdumpLists are the files that hold all objects of a resource.
var sysdumpLists = map[string]string{
	"k8s-endpoints":       "endpoints",
	"k8s-endpointslices":  "endpointslices.discovery.k8s.io",
	"k8s-leases":          "leases.coordination.k8s.io",
	"k8s-namespaces":      "namespaces",
	"k8s-networkpolicies": "networkpolicies.networking.k8s.io",
	"k8s-nodes":           "nodes",
	"k8s-pods":            "pods",
	"k8s-services":        "services",
	"ciliumendpoints":     "ciliumendpoints.cilium.io",
	"ciliumidentities":    "ciliumidentities.cilium.io",
	"ciliumnodes":         "ciliumnodes.cilium.io",
}

// sysdumpSome are the files that hold single objects.
var sysdumpSome = []string{"cilium-configmap", "cilium-daemonset", "cilium-envoy-daemonset", "cilium-operator-deployment"}

// bugtool is what the outputs are that doctor reads, by the names that the
// bugtool makes of the arguments. Of an output in two forms the JSON is read.
var bugtool = map[string]struct {
	kind    Kind
	command string
}{
	"bpf-lb-list":                {Dump, "cilium-dbg bpf lb list"},
	"config--a":                  {CiliumConfig, "cilium-dbg config -a"},
	"endpoint-list":              {CiliumEndpoints, "cilium-dbg endpoint list"},
	"endpoint-list--o-json":      {CiliumEndpoints, "cilium-dbg endpoint list -o json"},
	"identity-list":              {CiliumIdentities, "cilium-dbg identity list"},
	"metrics-list":               {CiliumMetrics, "cilium-dbg metrics list"},
	"service-list":               {Dump, "cilium-dbg service list"},
	"service-list--o-json":       {Dump, "cilium-dbg service list -o json"},
	"shell----db-show-backends":  {Dump, "cilium-dbg shell -- db/show backends"},
	"shell----db-show-frontends": {Dump, "cilium-dbg shell -- db/show frontends"},
	"status---verbose":           {CiliumStatus, "cilium-dbg status --verbose"},
	"version":                    {CiliumVersion, "cilium-dbg version"},
}

// sysdump returns what the files are if they are those of a sysdump; nil if
// they are not.
func (l *loader) sysdump() *sysdump {
	is := slices.ContainsFunc(l.files, func(f file) bool {
		return strings.HasPrefix(f.path, "k8s-") && sysdumpObjects.MatchString(f.path) || bugtoolOutput.MatchString(f.path)
	})
	if !is || l.followsLayout() {
		return nil
	}
	s := &sysdump{pods: map[string]sysdumpPod{}}
	for _, f := range l.files {
		if strings.HasPrefix(f.path, "k8s-pods-") && sysdumpObjects.MatchString(f.path) {
			s.read(f.content)
		}
	}
	return s
}

// read learns on which nodes pods are. A list that cannot be read tells of none.
func (s *sysdump) read(list []byte) {
	type container struct{ Name string }
	var pods struct {
		Items []struct {
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				NodeName                   string
				Containers, InitContainers []container
			}
		}
	}
	if yaml.Unmarshal(list, &pods) != nil {
		return
	}
	for _, p := range pods.Items {
		known := sysdumpPod{namespace: p.Metadata.Namespace, node: p.Spec.NodeName}
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			known.containers = append(known.containers, c.Name)
		}
		s.pods[p.Metadata.Name] = known
	}
}

// placed makes records of a sysdump's files. Most of them are of no use here,
// and are not worth a warning each.
func (s *sysdump) placed(l *loader, b *Bundle) {
	left := 0
	for i := range l.files {
		f := &l.files[i]
		r := Record{Path: f.path, Time: f.time.UTC()}
		if !s.locate(&r) || s.hasJSON(l, f.path) || r.check() != nil {
			left++
			continue
		}
		f.content = unfenced(f.content)
		r.fill(f)
		b.Records = append(b.Records, r)
	}
	if left > 0 {
		l.warn("%d files of the sysdump hold nothing that fairlead reads", left)
	}
}

// locate fills in what the path of a file says of it. It says false for one
// that is not read.
func (s *sysdump) locate(r *Record) bool {
	if output := bugtoolOutput.FindStringSubmatch(r.Path); output != nil {
		what, known := bugtool[output[1]]
		if !known {
			return false
		}
		r.Sample, r.Kind, r.Command = 1, what.kind, what.command
		if of := bugtoolOf.FindStringSubmatch(r.Path); of != nil {
			pod := s.pods[of[1]]
			r.Node, r.Pod, r.Container = pod.node, strings.TrimPrefix(pod.namespace+"/"+of[1], "/"), "cilium-agent"
		}
		return true
	}
	if name := sysdumpObjects.FindStringSubmatch(r.Path); name != nil {
		resource, all := sysdumpLists[name[1]]
		if !all {
			r.Sample, r.Kind, r.Command = 1, Objects, printable.Command("cat", path.Base(r.Path))
			return slices.Contains(sysdumpSome, name[1])
		}
		r.Sample, r.Kind, r.Resources = 1, Objects, []string{resource}
		r.Command = r.command()
		return true
	}
	return s.locateLog(r)
}

// locateLog finds the pod and the container in the name of a log: both may
// have dashes.
func (s *sysdump) locateLog(r *Record) bool {
	name := sysdumpLog.FindStringSubmatch(r.Path)
	if name == nil {
		return false
	}
	r.Kind = Log
	for pod, p := range s.pods {
		container, found := strings.CutPrefix(name[1], pod+"-")
		if found && slices.Contains(p.containers, container) {
			r.Node, r.Pod, r.Container = p.node, p.namespace+"/"+pod, container
		}
	}
	r.Command = r.command()
	if name[2] != "" && r.Pod != "" {
		r.Command += " --previous"
	}
	return true
}

// hasJSON says that the same output is there as JSON.
func (s *sysdump) hasJSON(l *loader, name string) bool {
	twin := strings.TrimSuffix(name, ".md") + "--o-json.md"
	return strings.HasSuffix(name, ".md") && slices.ContainsFunc(l.files, func(f file) bool { return f.path == twin })
}

// fence is how the bugtool puts an output into Markdown: a title with the
// command, and the output between marks.
var fence = regexp.MustCompile("(?s)\\A# [^\\n]*\\n\\n```\\n(.*\\n)```\\n")

// unfenced returns an output without the Markdown around it.
func unfenced(content []byte) []byte {
	if found := fence.FindSubmatchIndex(content); found != nil {
		return content[found[2]:found[3]]
	}
	return content
}

// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter/recording"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// The layout of an archive says of each file what it is:
//
//	bundle.json                          the index, with all that paths do not say
//	1/objects/RESOURCE[.GROUP].json      all objects of a resource, in sample 1
//	1/objects/_ANYTHING.yaml             some objects
//	1/nodes/NODE/KIND.ANYTHING           what was read on a node
//	1/nodes/NODE/dump-ANYTHING           a table of Services
//	1/version.json, 1/access.json        what was asked of the API server
//	events.json                          what is of no sample
//	logs/NODE/NAMESPACE_POD_CONTAINER.log

// index is the file that describes the others.
const index = "bundle.json"

// nobody stands for the node of a log where it is not known.
const nobody = "-"

// kinds are those that a file may be named after.
var kinds = []Kind{
	FairleadStatus, FairleadFrontends, FairleadKernel,
	CiliumVersion, CiliumStatus, CiliumConfig, CiliumEndpoints, CiliumIdentities, CiliumMetrics,
	KubeProxyVersion, KubeProxyMode, Version, Conntrack, Access, Probes, Events,
}

// commands are what a person would run for the same; of kinds that tell of a
// node, there.
var commands = map[Kind]string{
	FairleadStatus:    "fairlead status -o json",
	FairleadFrontends: "fairlead get frontends -o json",
	FairleadKernel:    "fairlead get kernel -o json",
	CiliumVersion:     "cilium-dbg version",
	CiliumStatus:      "cilium-dbg status --verbose",
	CiliumConfig:      "cilium-dbg config --all",
	CiliumEndpoints:   "cilium-dbg endpoint list",
	CiliumIdentities:  "cilium-dbg identity list",
	CiliumMetrics:     "cilium-dbg metrics list",
	KubeProxyVersion:  "kube-proxy --version",
	KubeProxyMode:     "curl -s http://127.0.0.1:10249/proxyMode",
	Version:           "kubectl version",
	Conntrack:         "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
	Access:            "kubectl auth can-i --list",
	Probes:            "fairlead doctor --probe",
	Events:            "fairlead events -o json",
}

// printer turns the names of tables into the commands that print them.
var printer = strings.NewReplacer("cilium db/", "cilium-dbg shell -- db/", "cilium lb/", "cilium-dbg shell -- lb/", "cilium ", "cilium-dbg ")

// resource is how a file of objects is named, without what follows its last
// dot.
var resource = regexp.MustCompile(`^[a-z][a-z0-9-]*(\.[a-z0-9.-]+)?$`)

// locate fills in what the path of a file says of it. It says false for a path
// that follows no layout.
func (r *Record) locate() bool {
	parts := strings.Split(r.Path, "/")
	sample, err := strconv.Atoi(parts[0])
	inSample := err == nil && sample > 0 && parts[0] == strconv.Itoa(sample)
	switch {
	case inSample && len(parts) == 3 && parts[1] == "objects":
		r.Sample, r.Kind = sample, Objects
		r.locateObjects(parts[2])
	case inSample && len(parts) == 4 && parts[1] == "nodes":
		r.Sample, r.Node, r.Kind = sample, parts[2], kindOf(parts[3])
	case inSample && len(parts) == 2:
		r.Sample, r.Kind = sample, kindOf(parts[1])
	case len(parts) == 3 && parts[0] == "logs" && strings.HasSuffix(parts[2], ".log"):
		r.Kind = Log
		r.locateLog(parts[1], strings.TrimSuffix(parts[2], ".log"))
	case len(parts) == 1 && kindOf(parts[0]) != Unknown:
		r.Kind = kindOf(parts[0])
	default:
		return false
	}
	return true
}

func (r *Record) locateObjects(file string) {
	name := strings.TrimSuffix(file, path.Ext(file))
	if strings.HasPrefix(name, "_") || !resource.MatchString(name) {
		return
	}
	r.Resources = []string{name}
}

func (r *Record) locateLog(node, file string) {
	if node != nobody {
		r.Node = node
	}
	namespace, rest, _ := strings.Cut(file, "_")
	pod, container, found := strings.Cut(rest, "_")
	if !found {
		return
	}
	r.Pod, r.Container = namespace+"/"+pod, container
}

// nameLog takes the name of a log that somebody saved for what the layout would
// have it say, or for that of a container.
func (r *Record) nameLog(file string) {
	r.Kind = Log
	r.locateLog(nobody, file)
	if r.Pod == "" {
		r.Container = file
	}
	if r.check() != nil { // it says something else
		r.Pod, r.Container = "", ""
	}
}

// kindOf is what a file is by its name.
func kindOf(file string) Kind {
	name, _, _ := strings.Cut(file, ".")
	if name == string(Dump) || strings.HasPrefix(name, string(Dump)+"-") {
		return Dump
	}
	if slices.Contains(kinds, Kind(name)) {
		return Kind(name)
	}
	return Unknown
}

// command is what a person would run for a record of which nobody says.
func (r *Record) command() string {
	switch {
	case r.Kind == Dump:
		return printer.Replace(strings.Join(recording.Sources(r.Content), "; "))
	case r.Kind == Objects && len(r.Resources) > 0:
		return fmt.Sprintf("kubectl get %s --all-namespaces -o json", strings.Join(r.Resources, ","))
	case r.Kind == Log && r.Pod != "":
		namespace, pod, _ := strings.Cut(r.Pod, "/")
		return printable.Command("kubectl", "logs", "-n", namespace, pod, "-c", r.Container)
	case commands[r.Kind] != "":
		return commands[r.Kind]
	}
	return printable.Command("cat", path.Base(r.Path))
}

// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"path"
	"regexp"

	"github.com/fairlead-io/fairlead/internal/adapter/recording"
)

// sign is how the first part of a text looks that is of a kind.
type sign struct {
	kind Kind
	text *regexp.Regexp
}

// signs are tried in their order.
var signs = []sign{
	{CiliumEndpoints, regexp.MustCompile(`(?m)^ENDPOINT\s+POLICY \(ingress\)|"external-identifiers"\s*:`)},
	{CiliumIdentities, regexp.MustCompile(`(?m)^ID\s+LABELS\b|"labelsSHA256"\s*:`)},
	{CiliumStatus, regexp.MustCompile(`(?m)^KVStore:\s|"kube-proxy-replacement"\s*:`)},
	{CiliumVersion, regexp.MustCompile(`(?m)^(Client|Daemon): \d+\.\d+\.\d+\S* `)},
	{CiliumMetrics, regexp.MustCompile(`(?m)^(Metric\s+Labels\s+Value|cilium_\w+[ {])`)},
	{CiliumConfig, regexp.MustCompile(`(?m)^#+ +Read-only configurations +#+$|^KubeProxyReplacement\s+:`)},
	{Conntrack, regexp.MustCompile(`(?m)^(net\.netfilter\.)?nf_conntrack_(count|max)\s*=`)},
	{KubeProxyVersion, regexp.MustCompile(`^Kubernetes v\d+\.\d+\.\d+`)},
	{Access, regexp.MustCompile(`"?kind"?\s*:\s*"?SubjectAccessReview`)},
	{Objects, regexp.MustCompile(`(?m)(^|[{,])\s*"?apiVersion"?\s*:`)},
	{Version, regexp.MustCompile(`"gitVersion"\s*:|(?m)^Server Version: v\d`)},
	{FairleadStatus, regexp.MustCompile(`"nodePortAddresses"\s*:`)},
	{FairleadKernel, regexp.MustCompile(`"unusedSets"\s*:|"pinPath"[\s\S]*"entries"\s*:`)},
	{FairleadFrontends, regexp.MustCompile(`^\s*\[\s*\{\s*"address"\s*:[\s\S]*"portName"\s*:`)},
	{Probes, regexp.MustCompile(`"outcome"\s*:[\s\S]*"because"\s*:`)},
	{Events, regexp.MustCompile(`^\{"id":\d+,"time":"[^"]*","kind":\{`)},
}

// logged is how lines of logs begin, or say the time.
var logged = regexp.MustCompile(`(?m)^(\d{4}-\d\d-\d\dT\S+ |[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ |(level=\w+ .*)?\btime=\S+ |\{"(ts|time|level|msg)":)`)

// tableOfKubectl is how tables for people begin. They leave out what a comparison
// needs, and look alike for many resources.
var tableOfKubectl = regexp.MustCompile(`(?m)^(NAMESPACE +)?NAME +.*\bAGE\b`)

// unknown says why nobody knows what a file is.
func (r *Record) unknown() string {
	if tableOfKubectl.Match(r.Content[:min(len(r.Content), sniffed)]) {
		return "it is a table of kubectl, which leaves most out: save it with -o yaml"
	}
	return "nothing says what it is"
}

// sniffed is how much of a text tells what it is.
const sniffed = 64 << 10

// sniff finds by its name, then by its content, what a file is that somebody
// put there.
func (r *Record) sniff() {
	head := bytes.TrimSpace(r.Content[:min(len(r.Content), sniffed)])
	named, shown := kindOf(path.Base(r.Path)), signOf(head)
	if named == Version && shown != Unknown { // whatever has one, people call its file version.txt
		named = shown
	}
	if named == Unknown {
		named = shown
	}
	if r.Kind = named; r.Kind != Unknown {
		return
	}
	switch {
	case len(recording.Sources(r.Content)) > 0:
		r.Kind = Dump
	case logged.Match(head):
		r.Kind = Log
	}
}

// signOf is what the beginning of a text shows that it is.
func signOf(head []byte) Kind {
	for _, s := range signs {
		if s.text.Match(head) {
			return s.kind
		}
	}
	return Unknown
}

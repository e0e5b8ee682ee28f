// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// cluster is what a file of clusters/ describes. Its sections are
// [MOMENT/]SAMPLE.yaml, with the objects that changed since the sample before.
type cluster struct {
	comment []byte
	node    localNode
	moments []moment
}

// localNode is the node whose agent is recorded: the first one of the first
// sample.
type localNode struct {
	name      string
	labels    map[string]string
	addresses []net.IP
}

// moment becomes a bundle.
type moment struct {
	name    string
	samples []sample
}

type sample struct {
	number  string
	time    string // by the line "# time: TIME" that may stand first; else the clock tells
	objects []object
}

// object is an object of the API as its file has it.
type object struct {
	kind, name string // name is NAMESPACE/NAME, or NAME of a cluster's own
	resource   string // RESOURCE[.GROUP]
	text       []byte
}

// served are the kinds of which a bundle has all objects, and that the load
// balancer is given.
var served = []string{"Service", "EndpointSlice", "Node"}

func readCluster(archive *txtar.Archive) (*cluster, error) {
	c := &cluster{comment: archive.Comment}
	for _, f := range archive.Files {
		name, number, found := strings.Cut(f.Name, "/")
		if !found {
			name, number = "", f.Name
		}
		number, found = strings.CutSuffix(number, ".yaml")
		if !found {
			return nil, fmt.Errorf("the section %s is no [MOMENT/]SAMPLE.yaml", f.Name)
		}
		objects, err := readObjects(f.Data)
		if err != nil {
			return nil, fmt.Errorf("the section %s: %w", f.Name, err)
		}
		if len(c.moments) == 0 || c.moments[len(c.moments)-1].name != name {
			c.moments = append(c.moments, moment{name: name})
		}
		last := &c.moments[len(c.moments)-1]
		last.samples = append(last.samples, sample{number, timeOf(f.Data), objects})
	}
	if len(c.moments) == 0 {
		return nil, errors.New("it has no sections")
	}
	return c, c.findNode()
}

func timeOf(data []byte) string {
	line, _, _ := strings.Cut(string(data), "\n")
	at, _ := strings.CutPrefix(line, "# time: ")
	if at == line {
		return ""
	}
	return at
}

func readObjects(data []byte) ([]object, error) {
	var out []object
	for _, text := range bytes.Split(data, []byte("\n---\n")) {
		var meta metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(text, &meta); err != nil {
			return nil, err
		}
		if meta.Kind == "" {
			continue // a comment, or nothing
		}
		o := object{kind: meta.Kind, name: meta.Name, resource: strings.ToLower(meta.Kind) + "s", text: append(bytes.TrimSpace(text), '\n')}
		if group, _, found := strings.Cut(meta.APIVersion, "/"); found {
			o.resource += "." + group
		}
		if meta.Namespace != "" {
			o.name = meta.Namespace + "/" + meta.Name
		}
		out = append(out, o)
	}
	return out, nil
}

func (c *cluster) findNode() error {
	objects := c.moments[0].samples[0].objects
	i := slices.IndexFunc(objects, func(o object) bool { return o.kind == "Node" })
	if i < 0 {
		return errors.New("the first sample has no Node")
	}
	var node corev1.Node
	if err := yaml.Unmarshal(objects[i].text, &node); err != nil {
		return fmt.Errorf("read the Node: %w", err)
	}
	c.node = localNode{name: node.Name, labels: node.Labels}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			c.node.addresses = append(c.node.addresses, net.ParseIP(a.Address))
		}
	}
	return nil
}

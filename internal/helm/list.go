// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// Info is a release as the names and labels of its objects tell.
type Info struct {
	Namespace, Name string
	// Revisions are those that Helm still keeps, the newest first.
	Revisions []Revision
}

// Revision is a revision of a release, without its content.
type Revision struct {
	Number int
	// Status and Modified are what labels say; empty without them.
	Status   string
	Modified time.Time

	kind string // secrets or configmaps
	// parts are the objects that hold it, by the numbers in their names: the first
	// has none, which is 0.
	parts map[int]string
	// follows is the object that the last part says to go on in.
	follows string
}

// Deployed is the newest revision that is in force, and whether one is.
func (i *Info) Deployed() (Revision, bool) {
	at := slices.IndexFunc(i.Revisions, func(r Revision) bool { return r.Status == StatusDeployed })
	if at < 0 {
		return Revision{}, false
	}
	return i.Revisions[at], true
}

// objectName is what Helm calls the objects of a revision. Variants of Helm that
// split a release number the further parts, in one of two ways.
var objectName = regexp.MustCompile(`^sh\.helm\.(?:release|partial)\.v1\.(.+)\.v([0-9]{1,9})(?:[.-]([0-9]{1,4}))?$`)

// List returns the releases of a namespace, "" being all, by namespace and name.
// It asks for metadata only.
func List(ctx context.Context, client kubernetes.Interface, namespace string) ([]Info, error) {
	found, _, err := list(ctx, client, namespace)
	return found, err
}

// list also returns the releases of Helm 2 that it met.
func list(ctx context.Context, client kubernetes.Interface, namespace string) (found []Info, old []string, err error) {
	g := grouping{}
	for _, kind := range []string{"secrets", "configmaps"} {
		err := pages(ctx, client, kind, namespace, func(m *metav1.PartialObjectMetadata) {
			if m.Labels["OWNER"] == "TILLER" {
				old = append(old, m.Labels["NAME"])
			}
			g.add(kind, m)
		})
		// Helm keeps releases in ConfigMaps only if it is told to.
		if err != nil && (kind == "secrets" || !apierrors.IsForbidden(err)) {
			return nil, nil, fmt.Errorf("list the %s in which Helm keeps its releases: %w", kind, err)
		}
	}
	return g.infos(), old, nil
}

// pages yields the metadata of the objects of a kind.
func pages(ctx context.Context, client kubernetes.Interface, kind, namespace string, each func(*metav1.PartialObjectMetadata)) error {
	const pageSize = 500
	options := metav1.ListOptions{Limit: pageSize}
	for {
		result := client.CoreV1().RESTClient().Get().Namespace(namespace).Resource(kind).
			VersionedParams(&options, scheme.ParameterCodec).
			SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx)
		if err := result.Error(); err != nil {
			return err
		}
		body, err := result.Raw()
		if err != nil {
			return err
		}
		var page metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &page); err != nil {
			return fmt.Errorf("read the API server's answer: %w", err)
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// grouping collects revisions by their release.
type grouping map[releaseKey]map[revisionKey]*Revision

type releaseKey struct{ namespace, name string }

type revisionKey struct {
	kind   string
	number int
}

// add takes an object in, if it is one of Helm's by its name. Labels are of no
// help there: those who copy Secrets may lose them.
func (g grouping) add(kind string, m *metav1.PartialObjectMetadata) {
	match := objectName.FindStringSubmatch(m.Name)
	if match == nil {
		return
	}
	number, _ := strconv.Atoi(match[2]) // it has few digits
	part, _ := strconv.Atoi(match[3])   // the first part has none
	release := releaseKey{m.Namespace, match[1]}
	if g[release] == nil {
		g[release] = map[revisionKey]*Revision{}
	}
	key := revisionKey{kind, number}
	if g[release][key] == nil {
		g[release][key] = &Revision{Number: number, kind: kind, parts: map[int]string{}}
	}
	r := g[release][key]
	r.parts[part] = m.Name
	r.Status = cmp.Or(r.Status, m.Labels["status"])
	r.follows = cmp.Or(m.Labels["continuedIn"], r.follows)
	if seconds, err := strconv.ParseInt(m.Labels["modifiedAt"], 10, 64); err == nil {
		r.Modified = time.Unix(seconds, 0)
	}
}

func (g grouping) infos() []Info {
	var all []Info
	for key, revisions := range g {
		info := Info{Namespace: key.namespace, Name: key.name}
		for _, r := range revisions {
			info.Revisions = append(info.Revisions, *r)
		}
		slices.SortFunc(info.Revisions, func(a, b Revision) int {
			return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(b.kind, a.kind))
		})
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Find reads a revision of a release; 0 is the one that is deployed.
func Find(ctx context.Context, client kubernetes.Interface, namespace, name string, revision int) (*Release, error) {
	chosen, err := choose(ctx, client, namespace, name, revision)
	if err != nil {
		return nil, fmt.Errorf("find Helm release %s/%s: %w", namespace, name, err)
	}
	release, err := read(ctx, client, namespace, chosen)
	if err == nil && (release.Name != name || release.Revision != chosen.Number) {
		err = fmt.Errorf("%w: it says to be revision %d of %q", ErrCorrupt, release.Revision, release.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read revision %d of Helm release %s/%s: %w", chosen.Number, namespace, name, err)
	}
	return release, nil
}

func choose(ctx context.Context, client kubernetes.Interface, namespace, name string, revision int) (Revision, error) {
	all, old, err := list(ctx, client, namespace)
	if err != nil {
		return Revision{}, err
	}
	at := slices.IndexFunc(all, func(i Info) bool { return i.Name == name })
	if at < 0 {
		return Revision{}, absent(ctx, client, name, all, old)
	}
	if revision == 0 {
		if r, found := all[at].Deployed(); found {
			return r, nil
		}
		return Revision{}, fmt.Errorf("%w, there are only %s: name one with its revision", ErrNotDeployed, all[at].numbers())
	}
	i := slices.IndexFunc(all[at].Revisions, func(r Revision) bool { return r.Number == revision })
	if i < 0 {
		return Revision{}, fmt.Errorf("%w with a revision %d: there are %s", ErrNotFound, revision, all[at].numbers())
	}
	return all[at].Revisions[i], nil
}

// numbers names revisions with their status: 3 (failed), 2 (superseded).
func (i *Info) numbers() string {
	texts := make([]string, len(i.Revisions))
	for n, r := range i.Revisions {
		texts[n] = fmt.Sprintf("%d (%s)", r.Number, r.Status)
	}
	return strings.Join(texts, ", ")
}

// absent says of a release that is not there what is there instead.
func absent(ctx context.Context, client kubernetes.Interface, name string, all []Info, old []string) error {
	if !slices.Contains(old, name) {
		// Helm 2 kept the releases of all namespaces where its server ran.
		_, more, err := list(ctx, client, metav1.NamespaceSystem)
		if err == nil {
			old = more
		}
	}
	if slices.Contains(old, name) {
		return fmt.Errorf("%w, which is not read here: render its manifest with `helm get manifest %s` of Helm 2", ErrHelm2, name)
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: the namespace has none (helm list -A --all)", ErrNotFound)
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return fmt.Errorf("%w: the namespace has %s", ErrNotFound, strings.Join(names, ", "))
}

// content is what an object has of a release.
type content struct {
	kind, name string
	secretType string
	data       map[string][]byte
}

func get(ctx context.Context, client kubernetes.Interface, namespace, kind, name string) (content, error) {
	c := content{kind: kind, name: name}
	if kind == "secrets" {
		secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return c, err
		}
		c.secretType, c.data = string(secret.Type), secret.Data
		return c, nil
	}
	config, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return c, err
	}
	c.data = maps.Clone(config.BinaryData)
	if c.data == nil {
		c.data = map[string][]byte{}
	}
	for key, text := range config.Data {
		c.data[key] = []byte(text)
	}
	return c, nil
}

// release is the field that holds a release, or a part of one.
func (c *content) release() ([]byte, error) {
	for _, key := range []string{"release", "chunk"} {
		if data, found := c.data[key]; found {
			return data, nil
		}
	}
	what := c.kind + "/" + c.name
	if c.secretType != "" {
		what += " of type " + c.secretType
	}
	return nil, fmt.Errorf("%w: %s has no field of that name", ErrForeign, what)
}

// read puts the parts of a revision together. Only the first of them can say
// how many there are, and not all who split releases have it do so.
func read(ctx context.Context, client kubernetes.Interface, namespace string, r Revision) (*Release, error) {
	names, err := r.names()
	if err != nil {
		return nil, err
	}
	var all []byte
	for i := 0; i < len(names); i++ {
		c, err := get(ctx, client, namespace, r.kind, names[i])
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: %s/%s, part %d of %d", ErrIncomplete, r.kind, names[i], i+1, len(names))
		}
		if err != nil {
			return nil, err
		}
		part, err := c.release()
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		if len(all) > 2*maxUnpacked {
			return nil, fmt.Errorf("%w: its parts have more than %d MiB", ErrTooLarge, 2*maxUnpacked>>20)
		}
		more, err := c.more()
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	release, err := Decode(all)
	if errors.Is(err, ErrTruncated) && len(names) > 1 {
		return nil, fmt.Errorf("%w (%d parts were found: one after them may be missing)", err, len(names))
	}
	return release, err
}

// more are the objects in which the first one says that a release goes on.
func (c *content) more() (names []string, err error) {
	const most = 1000
	text, found := c.data["extraChunks"]
	if !found {
		return nil, nil
	}
	if err := json.Unmarshal(text, &names); err != nil || len(names) > most {
		return nil, fmt.Errorf("%w: extraChunks of %s/%s is no list of names", ErrCorrupt, c.kind, c.name)
	}
	return names, nil
}

// names are the objects of a revision in their order. Further parts are numbered
// from one or two on, without a gap.
func (r *Revision) names() ([]string, error) {
	numbers := slices.Sorted(maps.Keys(r.parts))
	var names []string
	for i, number := range numbers {
		switch {
		case i == 0 && number != 0:
			return nil, fmt.Errorf("%w: the first; there is %s/%s", ErrIncomplete, r.kind, r.parts[number])
		case i == 1 && number > 2, i > 1 && number != numbers[i-1]+1:
			return nil, fmt.Errorf("%w: the one before %s/%s", ErrIncomplete, r.kind, r.parts[number])
		}
		names = append(names, r.parts[number])
	}
	if r.follows != "" && !slices.Contains(names, r.follows) {
		return nil, fmt.Errorf("%w: %s/%s, which another part names", ErrIncomplete, r.kind, r.follows)
	}
	return names, nil
}

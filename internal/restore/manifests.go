// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-io/fairlead/internal/helm"
)

// maxManifest bounds what is read of one file.
const maxManifest = 64 << 20

// hookNote marks an object that Helm makes for a moment of an installation.
const hookNote = "helm.sh/hook"

// FromManifests takes what files, folders and stdin ("-") hold, in all of a
// folder's folders.
func FromManifests(paths []string, stdin io.Reader, namespace string) (*Wanted, error) {
	w := &Wanted{Source: strings.Join(paths, ", "), By: "manifest", Namespace: namespace}
	for _, path := range paths {
		if err := w.addPath(path, stdin); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// FromRendered takes what a chart became.
func FromRendered(source, namespace string, manifest []byte) (*Wanted, error) {
	w := &Wanted{Source: source, By: "manifest", Namespace: namespace}
	return w, w.addManifest(source, manifest)
}

// FromRelease takes what a release was to install, marked as Helm marks what
// belongs to a release.
func FromRelease(r *helm.Release) (*Wanted, error) {
	w := &Wanted{Source: releaseText(r), By: "release", Namespace: r.Namespace}
	if err := w.addManifest("the definitions of the chart", []byte(r.Definitions)); err != nil {
		return nil, err
	}
	definitions := len(w.Objects)
	if err := w.addManifest("the release's manifest", []byte(r.Manifest)); err != nil {
		return nil, err
	}
	for _, o := range w.Objects[definitions:] {
		mark(o.Unstructured, r)
	}
	for _, hook := range r.Hooks {
		w.LeftOut = append(w.LeftOut, hook+": it is a hook, which Helm makes for a moment of an installation only")
	}
	return w, nil
}

func releaseText(r *helm.Release) string {
	text := fmt.Sprintf("Helm release %s/%s, revision %d (%s %s, %s", r.Namespace, r.Name, r.Revision, r.Chart, r.ChartVersion, r.Status)
	if !r.Modified.IsZero() {
		text += " " + r.Modified.UTC().Format("2006-01-02 15:04:05Z")
	}
	return text + ")"
}

// mark writes what Helm adds to objects as it makes them: it stands in no
// manifest, and without it Helm takes an object for somebody else's.
func mark(u *unstructured.Unstructured, r *helm.Release) {
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["app.kubernetes.io/managed-by"] = "Helm"
	annotations["meta.helm.sh/release-name"] = r.Name
	annotations["meta.helm.sh/release-namespace"] = r.Namespace
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
}

func (w *Wanted) addPath(path string, stdin io.Reader) error {
	if path == "-" {
		return w.addFrom("stdin", stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return w.addFile(path)
	}
	found := false
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !isManifest(entry.Name()) {
			return err
		}
		found = true
		return w.addFile(file)
	})
	if err == nil && !found {
		err = fmt.Errorf("read manifests: the folder %s has no file *.yaml, *.yml or *.json", path)
	}
	return err
}

// isManifest leaves out what editors keep under other names.
func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func (w *Wanted) addFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	defer file.Close()
	return w.addFrom(path, file)
}

func (w *Wanted) addFrom(name string, from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	if err != nil {
		return fmt.Errorf("read manifests from %s: %w", name, err)
	}
	if len(text) > maxManifest {
		return fmt.Errorf("read manifests from %s: it has more than %d MiB: split it", name, maxManifest>>20)
	}
	return w.addManifest(name, text)
}

// addManifest takes documents of YAML or JSON, of which each may be a list.
func (w *Wanted) addManifest(name string, text []byte) error {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = w.addDocument(document)
		}
		if err != nil {
			return fmt.Errorf("read document %d of %s: %w", n, name, err)
		}
	}
}

var (
	errNoYAML = errors.New("it is neither YAML nor JSON")
	errNoKind = errors.New("it has no apiVersion and kind: is it a chart's template, or a values file?")
)

// addDocument says of what cannot be read no word that stands in it, which may
// be a secret.
func (w *Wanted) addDocument(document []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(document), 4096)
	for {
		var fields map[string]any
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errNoYAML
		}
		if len(fields) == 0 {
			continue
		}
		if err := w.addObject(&unstructured.Unstructured{Object: fields}); err != nil {
			return err
		}
	}
}

func (w *Wanted) addObject(u *unstructured.Unstructured) error {
	if items, isList := u.Object["items"].([]any); isList && strings.HasSuffix(u.GetKind(), "List") {
		for i, item := range items {
			fields, isObject := item.(map[string]any)
			if !isObject {
				return fmt.Errorf("item %d of the list is no object", i)
			}
			if err := w.addObject(&unstructured.Unstructured{Object: fields}); err != nil {
				return fmt.Errorf("item %d of the list: %w", i, err)
			}
		}
		return nil
	}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return errNoKind
	}
	if hook := u.GetAnnotations()[hookNote]; hook != "" {
		w.LeftOut = append(w.LeftOut, reference(u.GetKind(), u.GetNamespace(), u.GetName())+": it is a hook, which Helm makes for a moment of an installation only")
		return nil
	}
	w.add(u)
	return nil
}

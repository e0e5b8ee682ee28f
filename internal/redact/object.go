// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"strings"
)

// lastApplied is a copy of the whole object, secrets included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// leftOut is how the text begins that stands for a value.
const leftOut = "(left out, "

// Left is what was left out of an object, by its place.
type Left map[string]withheld

// withheld is a value that was left out: the text that stands for it, and a
// sum by which a later one is told from it. The sum never leaves the process.
type withheld struct {
	text string
	sum  [sha256.Size]byte
}

// Redactor leaves secrets out of objects. Its key is of one run and of chance, so
// that nobody could try what a sum is of. It is for one goroutine.
type Redactor struct {
	key   [32]byte
	names map[string]bool // whether it is one of a secret, of names met before
}

// New returns a redactor that has seen nothing.
func New() *Redactor {
	r := &Redactor{names: make(map[string]bool)}
	_, _ = rand.Read(r.key[:]) // it never fails
	return r
}

// pass is what is known while one object is gone through.
type pass struct {
	*Redactor
	version string
	path    []string
	before  Left
	now     Left
	lost    bool // something was taken away without a trace
	strict  int  // how many levels up it began that settings are kept here
}

// Object replaces in place what must not be known of an object of a resource,
// "" being the group of the core. It takes what was left out of the object
// before, and returns what is left out now: a value that differs from the one
// before says in which version that was noticed.
func (r *Redactor) Object(group, resource, version string, object map[string]any, before Left) Left {
	p := &pass{Redactor: r, version: version, before: before}
	p.object(group, resource, object)
	return p.now
}

func (p *pass) object(group, resource string, object map[string]any) {
	secret := group == "" && resource == "secrets"
	settings := group == "" && resource == "configmaps"
	p.fields(object, func(key string, value any) (string, bool) {
		switch {
		case secret && (key == "data" || key == "stringData"), settings && key == "binaryData":
			return p.all(value)
		case settings && key == "data":
			return p.strictly("", value)
		case key == "metadata":
			p.metadata(value, secret)
			return "", false
		}
		return p.value(key, value)
	})
}

// metadata may hold secrets in annotations only: the rest are names. Tools keep
// copies of what they wrote there, so those of a Secret tell all that it does.
func (p *pass) metadata(value any, secret bool) {
	fields, _ := value.(map[string]any)
	annotations, _ := fields["annotations"].(map[string]any)
	p.dropCopy(annotations)
	if len(annotations) == 0 {
		delete(fields, "annotations")
		return
	}
	p.path = append(p.path, "annotations")
	if secret {
		p.all(annotations)
	} else {
		p.strictly("", annotations)
	}
	p.path = p.path[:len(p.path)-1]
}

// dropCopy takes away the copy of the object that kubectl apply made.
func (p *pass) dropCopy(annotations map[string]any) {
	if _, copied := annotations[lastApplied]; copied {
		delete(annotations, lastApplied)
		p.lost = true
	}
}

// all leaves out every text.
func (p *pass) all(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return p.replace(v), true
	case map[string]any:
		p.fields(v, func(_ string, inner any) (string, bool) { return p.all(inner) })
	case []any:
		p.elements(v, p.all)
	}
	return "", false
}

// strictly leaves out what looks like a secret among settings and files.
func (p *pass) strictly(name string, value any) (string, bool) {
	p.strict++
	defer func() { p.strict-- }()
	return p.value(name, value)
}

// value leaves out what looks like a secret by its name or by itself. Of a text
// it returns what is to stand for it, if anything is.
func (p *pass) value(name string, value any) (instead string, secret bool) {
	switch v := value.(type) {
	case string:
		if p.isSecret(name, v) {
			return p.replace(v), true
		}
	case map[string]any:
		p.fieldsOf(v)
	case []any:
		p.list(name, v)
	}
	return "", false
}

func (p *pass) isSecret(name, value string) bool {
	if harmless(value) {
		return false
	}
	return p.isSecretName(name) || secretText(value) || p.strict > 0 && secretDocument(value)
}

// rememberedNames bounds what a redactor remembers of names. A kind has few.
const rememberedNames = 4096

func (r *Redactor) isSecretName(name string) bool {
	secret, known := r.names[name]
	if known {
		return secret
	}
	if len(r.names) >= rememberedNames {
		clear(r.names)
	}
	secret = secretName(name)
	r.names[name] = secret
	return secret
}

// fieldsOf knows {name, value}, as environments have it, and labels, which are
// names by which objects find each other. Within other objects there may be
// annotations, as in the template of a pod, and whole Secrets.
func (p *pass) fieldsOf(fields map[string]any) {
	named := cmp.Or(text(fields, "name"), text(fields, "key"))
	secret := text(fields, "kind") == "Secret"
	p.fields(fields, func(key string, value any) (string, bool) {
		switch key {
		case "data", "stringData":
			if secret {
				return p.all(value)
			}
		case "annotations":
			if annotations, isMap := value.(map[string]any); isMap {
				p.dropCopy(annotations)
				return p.strictly("", annotations)
			}
		case "value":
			if named != "" {
				return p.strictly(named, value)
			}
		case "labels", "matchLabels", "selector":
			if _, isMap := value.(map[string]any); isMap {
				return "", false
			}
		case "args", "command":
			return p.strictly(key, value)
		}
		return p.value(key, value)
	})
}

// list knows --password and its value as two elements, and -u and a login.
func (p *pass) list(name string, list []any) {
	as, before := name, ""
	p.elements(list, func(element any) (string, bool) {
		word, _ := element.(string)
		if isLogin(before, word) {
			as = "password"
		}
		instead, secret := p.value(as, element)
		as, before = name, word
		if strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			as = strings.TrimLeft(word, "-")
		}
		return instead, secret
	})
}

func (p *pass) fields(fields map[string]any, each func(key string, value any) (string, bool)) {
	for key, value := range fields {
		p.path = append(p.path, key)
		if instead, secret := each(key, value); secret {
			fields[key] = instead
		}
		p.path = p.path[:len(p.path)-1]
	}
}

// elements names an element by its name where it has one, since its index
// changes when others come and go.
func (p *pass) elements(list []any, each func(any) (string, bool)) {
	for i, element := range list {
		segment := strconv.Itoa(i)
		if fields, ok := element.(map[string]any); ok && text(fields, "name") != "" {
			segment = "name=" + text(fields, "name")
		}
		p.path = append(p.path, segment)
		if instead, secret := each(element); secret {
			list[i] = instead
		}
		p.path = p.path[:len(p.path)-1]
	}
}

// replace returns the text that stands for a value.
func (p *pass) replace(value string) string {
	w := withheld{text: leftOut + lengthClass(len(value)) + ")"}
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(value))
	mac.Sum(w.sum[:0])
	if last, ok := p.before[p.place()]; ok {
		w.text = p.next(last, w)
	}
	p.withhold(w)
	return w.text
}

func (p *pass) withhold(w withheld) {
	if p.now == nil {
		p.now = make(Left)
	}
	p.now[p.place()] = w
}

// place names where in the object the pass is.
func (p *pass) place() string { return strings.Join(p.path, "\x00") }

// next is the text for a value that has one before it. Of a value that another
// run withheld there is no sum.
func (p *pass) next(last, now withheld) string {
	if last.sum == now.sum || last.sum == ([sha256.Size]byte{}) && sameClass(last.text, now.text) {
		return last.text
	}
	return strings.TrimSuffix(now.text, ")") + ", changed in " + p.version + ")"
}

func sameClass(a, b string) bool {
	return strings.HasPrefix(a, strings.TrimSuffix(b, ")"))
}

// lengthClass says how long a value is, roughly.
func lengthClass(n int) string {
	for bound := 16; bound <= 1024; bound *= 4 {
		if n <= bound {
			return "up to " + strconv.Itoa(bound) + " bytes"
		}
	}
	return "over 1024 bytes"
}

// LeftIn finds what an earlier run left out of an object.
func (r *Redactor) LeftIn(object map[string]any) Left {
	p := &pass{Redactor: r}
	p.find(object)
	return p.now
}

func (p *pass) find(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		if strings.HasPrefix(v, leftOut) {
			p.withhold(withheld{text: v})
		}
	case map[string]any:
		p.fields(v, func(_ string, inner any) (string, bool) { return p.find(inner) })
	case []any:
		p.elements(v, p.find)
	}
	return "", false
}

// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// object is what an API server says of an object, as it came, but for what
// stands beside the content of an event.
type object struct {
	namespace, name, uid, version string
	managedFields                 any
	content                       map[string]any
}

// decodeObject keeps numbers as they are written.
func decodeObject(text []byte) (map[string]any, error) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&fields)
	return fields, err
}

var errNameless = errors.New("an object without a name")

// readObject takes over the fields of an object. Those of a list do not say
// what they are.
func readObject(kind journal.Kind, fields map[string]any) (object, error) {
	meta, _ := fields["metadata"].(map[string]any)
	o := object{
		namespace: text(meta, "namespace"), name: text(meta, "name"), uid: text(meta, "uid"), version: text(meta, "resourceVersion"),
		managedFields: meta["managedFields"], content: fields,
	}
	if o.name == "" {
		return object{}, fmt.Errorf("read a %s: %w", kind.Kind, errNameless)
	}
	delete(meta, "managedFields")
	delete(meta, "resourceVersion")
	fields["apiVersion"], fields["kind"] = apiVersion(kind), kind.Kind
	return o, nil
}

func apiVersion(kind journal.Kind) string {
	if kind.Group == "" {
		return kind.Version
	}
	return kind.Group + "/" + kind.Version
}

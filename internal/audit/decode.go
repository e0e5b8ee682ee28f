// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxWraps bounds how deep records lie in what a cloud wraps around them. Three
// is what is known: a list of entries whose properties hold a text.
const maxWraps = 6

// errOther is valid JSON that is no audit record.
var errOther = errors.New("no audit record")

// loose is a value that some logs hold as JSON, and others as a text that holds
// the JSON. What has another type leaves it zero: a record is not lost for one
// field.
type loose[T any] struct{ value T }

// UnmarshalJSON never fails.
func (l *loose[T]) UnmarshalJSON(data []byte) error {
	var value T
	if json.Unmarshal(data, &value) != nil && json.Unmarshal(content(data), &value) != nil {
		return nil
	}
	l.value = value
	return nil
}

// content is what a JSON string holds, and anything else as it is.
func content(data []byte) []byte {
	var text string
	if len(data) == 0 || data[0] != '"' || json.Unmarshal(data, &text) != nil {
		return data
	}
	return bytes.TrimSpace([]byte(text))
}

type wireUser struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

type wireRef struct {
	Resource    string `json:"resource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	APIGroup    string `json:"apiGroup"`
	APIVersion  string `json:"apiVersion"`
	Subresource string `json:"subresource"`
}

type wireStatus struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// wireAnnotations are the annotations of a record that are read.
type wireAnnotations struct {
	Decision string `json:"authorization.k8s.io/decision"`
}

type wireObject struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// wire is an audit record, or what may be around one. A requestObject is not
// named here, so it is passed over without being decoded.
type wire struct {
	Level        string                 `json:"level"`
	AuditID      string                 `json:"auditID"`
	Stage        string                 `json:"stage"`
	RequestURI   string                 `json:"requestURI"`
	Verb         string                 `json:"verb"`
	UserAgent    string                 `json:"userAgent"`
	User         loose[wireUser]        `json:"user"`
	Impersonated loose[wireUser]        `json:"impersonatedUser"`
	SourceIPs    loose[[]string]        `json:"sourceIPs"`
	ObjectRef    loose[wireRef]         `json:"objectRef"`
	Status       loose[wireStatus]      `json:"responseStatus"`
	Response     loose[wireObject]      `json:"responseObject"`
	Annotations  loose[wireAnnotations] `json:"annotations"`
	Received     string                 `json:"requestReceivedTimestamp"`
	Reached      string                 `json:"stageTimestamp"`
	ReceivedTime string                 `json:"RequestReceivedTime"`
	ReachedTime  string                 `json:"StageReceivedTime"`
	flat
	wrapper
}

// flat are the fields of a record whose objects a log service took apart.
type flat struct {
	Username    string          `json:"user.username"`
	Groups      loose[[]string] `json:"user.groups"`
	Resource    string          `json:"objectRef.resource"`
	Namespace   string          `json:"objectRef.namespace"`
	Name        string          `json:"objectRef.name"`
	Group       string          `json:"objectRef.apiGroup"`
	Version     string          `json:"objectRef.apiVersion"`
	Subresource string          `json:"objectRef.subresource"`
	Code        loose[int]      `json:"responseStatus.code"`
}

// decoder turns JSON values into records.
type decoder struct{ records []Record }

// decode appends the records that a JSON value holds. origin is what a wrapper
// around the value said of where it comes from.
func (d *decoder) decode(data []byte, origin string, wraps int) error {
	data = bytes.TrimSpace(data)
	if wraps > maxWraps || len(data) == 0 {
		return errOther
	}
	if data[0] == '[' {
		return d.list(data, origin, wraps)
	}
	var w wire
	err := json.Unmarshal(data, &w)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !ok {
		return fmt.Errorf("broken JSON: %w", err)
	}
	if w.Verb != "" && (w.AuditID != "" || w.Stage != "") {
		d.records = append(d.records, w.record(origin))
		return nil
	}
	return d.unwrap(&w.wrapper, origin, wraps)
}

func (d *decoder) list(data []byte, origin string, wraps int) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return fmt.Errorf("broken JSON: %w", err)
	}
	if message, stream := insights(elements); message != nil {
		return d.decode(message, or(stream, origin), wraps+1)
	}
	result := errOther
	for _, element := range elements {
		err := d.decode(element, origin, wraps+1)
		if err == nil && result == errOther || err != nil && !errors.Is(err, errOther) {
			result = err
		}
	}
	return result
}

func (w *wire) record(origin string) Record {
	ref := w.ObjectRef.value
	user := w.User.value
	return Record{
		Time:         parseTime(w.Reached, w.ReachedTime, w.Received, w.ReceivedTime),
		Stage:        Stage(w.Stage),
		Level:        Level(w.Level),
		AuditID:      w.AuditID,
		User:         or(user.Username, w.Username),
		Impersonated: w.Impersonated.value.Username,
		Groups:       append(user.Groups, w.Groups.value...),
		UserAgent:    w.UserAgent,
		SourceIPs:    w.SourceIPs.value,
		Verb:         w.Verb,
		RequestURI:   w.RequestURI,
		Resource: Resource{
			Group:       or(ref.APIGroup, w.Group),
			Version:     or(ref.APIVersion, w.Version),
			Resource:    or(ref.Resource, w.Resource),
			Subresource: or(ref.Subresource, w.Subresource),
		},
		Namespace:       or(ref.Namespace, w.Namespace),
		Name:            or(ref.Name, w.Name),
		Code:            max(w.Status.value.Code, w.Code.value),
		Message:         w.Status.value.Message,
		Decision:        w.Annotations.value.Decision,
		ResourceVersion: w.Response.value.Metadata.ResourceVersion,
		Server:          or(w.origin(), origin),
	}
}

// or is the first text that is not empty.
func or(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// parseTime reads the first time that is one: RFC 3339, as everybody writes it,
// or seconds or milliseconds since 1970.
func parseTime(texts ...string) time.Time {
	for _, text := range texts {
		if t, err := time.Parse(time.RFC3339Nano, strings.Replace(text, " ", "T", 1)); err == nil {
			return t.UTC()
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			return epoch(n)
		}
	}
	return time.Time{}
}

// epoch tells milliseconds from seconds by their size: as seconds, the limit is
// the year 5138.
func epoch(n int64) time.Time {
	if n < 100_000_000_000 {
		return time.Unix(n, 0).UTC()
	}
	return time.UnixMilli(n).UTC()
}

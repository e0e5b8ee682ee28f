// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"errors"
	"slices"
)

// wrapper is what log services put around records. README.md says whose each
// field is.
type wrapper struct {
	// Lists of records or of further wrappers.
	Items     json.RawMessage `json:"items"`
	Events    json.RawMessage `json:"events"`
	LogEvents json.RawMessage `json:"logEvents"`
	Records   json.RawMessage `json:"records"`
	Results   json.RawMessage `json:"results"`
	Entries   json.RawMessage `json:"entries"`

	// One record or wrapper, as JSON or as a text that holds it.
	Message    json.RawMessage `json:"message"`
	AtMessage  json.RawMessage `json:"@message"`
	Properties json.RawMessage `json:"properties"`
	Log        json.RawMessage `json:"log"`
	LogS       json.RawMessage `json:"log_s"`
	Content    json.RawMessage `json:"content"`
	DunderText json.RawMessage `json:"__CONTENT__"`

	ProtoPayload *cloudAudit   `json:"protoPayload"`
	InsertID     string        `json:"insertId"`
	Timestamp    loose[string] `json:"timestamp"`
	Cluster      cloudCluster  `json:"resource"`

	// Where the record comes from.
	LogStreamName string        `json:"logStreamName"`
	LogStream     string        `json:"logStream"`
	AtLogStream   string        `json:"@logStream"`
	Pod           string        `json:"pod"`
	PodS          string        `json:"pod_s"`
	PodName       string        `json:"PodName"`
	Source        loose[string] `json:"__SOURCE__"`
}

// lists are the names of the wrapper's lists. Documents are read element by
// element below them.
func lists() []string {
	return []string{"items", "events", "logEvents", "records", "results", "entries"}
}

func isList(key string) bool { return slices.Contains(lists(), key) }

func (w *wrapper) origin() string {
	return or(w.LogStreamName, w.LogStream, w.AtLogStream, w.PodName, w.Pod, w.PodS, w.Source.value)
}

func (d *decoder) unwrap(w *wrapper, origin string, wraps int) error {
	origin = or(w.origin(), origin)
	if w.ProtoPayload != nil {
		return d.cloudAudit(w, origin)
	}
	inner := []json.RawMessage{
		w.Items, w.Events, w.LogEvents, w.Records, w.Results, w.Entries,
		w.AtMessage, w.Message, w.Properties, w.Log, w.LogS, w.DunderText, w.Content,
	}
	result := errOther
	for _, raw := range inner {
		text := content(raw)
		if len(text) == 0 || text[0] != '{' && text[0] != '[' {
			continue
		}
		err := d.decode(text, origin, wraps+1)
		if err == nil || !errors.Is(err, errOther) {
			return err
		}
	}
	return result
}

// insights finds the record in a row of CloudWatch Logs Insights, which is a
// list of named values.
func insights(row []json.RawMessage) (message []byte, stream string) {
	for _, cell := range row {
		var named struct{ Field, Value string }
		if json.Unmarshal(cell, &named) != nil || named.Field == "" {
			return nil, ""
		}
		switch named.Field {
		case "@message":
			message = []byte(named.Value)
		case "@logStream":
			stream = named.Value
		}
	}
	return message, stream
}

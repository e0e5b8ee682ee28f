// SPDX-License-Identifier: Apache-2.0

// Package audit reads what API servers noted about requests: audit logs in the
// shapes in which servers write them and clouds export them, and the policies
// that decide what is noted.
//
// It turns files into records, and records into counts, in memory that does not
// grow with the files. It knows no Service, no journal and no API server; what a
// record means for anything but the log itself is decided elsewhere.
package audit

import "time"

// Stage is the moment of a request at which a record was written.
type Stage string

// The stages of audit.k8s.io/v1.
const (
	RequestReceived  Stage = "RequestReceived"
	ResponseStarted  Stage = "ResponseStarted"
	ResponseComplete Stage = "ResponseComplete"
	Panic            Stage = "Panic"
)

// Level is how much a record tells.
type Level string

// The levels of audit.k8s.io/v1.
const (
	None            Level = "None"
	Metadata        Level = "Metadata"
	Request         Level = "Request"
	RequestResponse Level = "RequestResponse"
)

// Resource is what a request was about. It is zero for a request of a path that
// is no resource, such as /healthz.
type Resource struct {
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
}

// String is the resource as RBAC writes it: deployments.apps/scale.
func (r Resource) String() string {
	text := r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	return text
}

// Record is one line of an audit log. What a log does not say is zero.
type Record struct {
	// Time is when the record's stage was reached.
	Time    time.Time
	Stage   Stage
	Level   Level
	AuditID string
	// User is who asked; Impersonated is in whose name, if in another's.
	User         string
	Impersonated string
	Groups       []string
	UserAgent    string
	SourceIPs    []string
	Verb         string
	RequestURI   string
	Resource     Resource
	Namespace    string
	Name         string
	// Code is the HTTP status of the answer, and Message what it says of a failure.
	Code    int
	Message string
	// Decision is what the authorizers said: allow or forbid. Nothing is written
	// of a request that did not come to them, nor by clouds that keep it to
	// themselves.
	Decision string
	// ResourceVersion is that of the object answered with, where the record holds
	// the object.
	ResourceVersion string
	// Server tells the servers' logs apart: what the log says of its origin, or
	// else the file's path without what rotation puts into it.
	Server string
	// File and Line are where the record was read.
	File string
	Line int
}

// Done says whether the request had its end: a record of an earlier stage is
// about a request that may have another one.
func (r Record) Done() bool {
	return r.Stage == ResponseComplete || r.Stage == Panic || r.Stage == ""
}

// Writes says whether the request was one that changes an object.
func (r Record) Writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return r.Resource.Resource != ""
	}
	return false
}

// Failed says whether the server refused the request or failed at it.
func (r Record) Failed() bool { return r.Code >= 400 || r.Stage == Panic }

// RequestedName is the name in the request's path, which is all that a server
// knows when it decides about the request. The name of what is created stands in
// the object, and comes into the record later.
func (r Record) RequestedName() string {
	if r.Verb == "create" && r.Resource.Subresource == "" {
		return ""
	}
	return r.Name
}

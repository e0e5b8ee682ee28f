// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"net/http"
	"strings"
)

// cloudAudit is the AuditLog of Google Cloud, of which GKE makes one for each
// request. It has no stage and no level.
type cloudAudit struct {
	ServiceName        string `json:"serviceName"`
	MethodName         string `json:"methodName"`
	ResourceName       string `json:"resourceName"`
	AuthenticationInfo struct {
		PrincipalEmail string `json:"principalEmail"`
	} `json:"authenticationInfo"`
	RequestMetadata struct {
		CallerIP  string `json:"callerIp"`
		UserAgent string `json:"callerSuppliedUserAgent"`
	} `json:"requestMetadata"`
	Status   loose[wireStatus] `json:"status"`
	Response loose[wireObject] `json:"response"`
}

// cloudCluster is the part of an entry's monitored resource that says which
// cluster it is.
type cloudCluster struct{ name string }

// UnmarshalJSON never fails: other logs have a "resource" of another shape.
func (c *cloudCluster) UnmarshalJSON(data []byte) error {
	var resource loose[struct {
		Labels struct {
			Cluster string `json:"cluster_name"`
		} `json:"labels"`
	}]
	_ = resource.UnmarshalJSON(data)
	c.name = resource.value.Labels.Cluster
	return nil
}

// kubernetesService is the service name of a request to an API server; other
// entries are about the cluster as a product.
const kubernetesService = "k8s.io"

func (d *decoder) cloudAudit(w *wrapper, origin string) error {
	p := w.ProtoPayload
	if p.ServiceName != kubernetesService {
		return errOther
	}
	r := Record{
		Time:            parseTime(w.Timestamp.value),
		AuditID:         w.InsertID,
		User:            p.AuthenticationInfo.PrincipalEmail,
		UserAgent:       p.RequestMetadata.UserAgent,
		Verb:            p.MethodName[strings.LastIndexByte(p.MethodName, '.')+1:],
		Code:            httpStatus(p.Status.value.Code),
		Message:         p.Status.value.Message,
		ResourceVersion: p.Response.value.Metadata.ResourceVersion,
		Server:          or(origin, w.Cluster.name),
	}
	if p.RequestMetadata.CallerIP != "" {
		r.SourceIPs = []string{p.RequestMetadata.CallerIP}
	}
	r.target(p.ResourceName)
	d.records = append(d.records, r)
	return nil
}

// target reads GROUP/VERSION[/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]],
// in which the core group is called core. As in servers' own records, a
// Namespace lies in itself.
func (r *Record) target(path string) {
	parts := strings.Split(path, "/")
	if len(parts) < 3 {
		r.RequestURI = "/" + strings.TrimPrefix(path, "/")
		return
	}
	r.Resource.Group, r.Resource.Version = parts[0], parts[1]
	if parts[0] == "core" {
		r.Resource.Group = ""
	}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 1 {
		r.Namespace = parts[1]
	}
	if r.Namespace != "" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	r.Resource.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	r.Resource.Subresource = strings.Join(parts[min(2, len(parts)):], "/")
}

// httpStatus is the HTTP status of a google.rpc.Code, as that type documents it.
// A record without a status is one of success.
func httpStatus(code int) int {
	switch code {
	case 0:
		return http.StatusOK
	case 1:
		return 499 // the client went away
	case 3, 9, 11:
		return http.StatusBadRequest
	case 4:
		return http.StatusGatewayTimeout
	case 5:
		return http.StatusNotFound
	case 6, 10:
		return http.StatusConflict
	case 7:
		return http.StatusForbidden
	case 8:
		return http.StatusTooManyRequests
	case 12:
		return http.StatusNotImplemented
	case 14:
		return http.StatusServiceUnavailable
	case 16:
		return http.StatusUnauthorized
	}
	if code >= 100 {
		return code
	}
	return http.StatusInternalServerError
}

// SPDX-License-Identifier: Apache-2.0

// Package apiserver is the agent's own way to the API server, with no Service
// in it: a proxy that reaches the API through a Service address depends on
// tables that only the API can correct.
//
// A Client keeps a list of endpoints, which are places where an API server is
// or was: those that the operator named (a kubeconfig, --api-server), and
// addresses that were learned (EndpointSlices, the kernel's maps, a file of the
// last run). client-go gets its configuration from Client.REST and knows
// nothing of all that: the Client is the transport, and sends each request to
// the endpoint in use.
//
// # Choosing
//
// A heartbeat is GET /readyz over TLS. 200, 401 and 403 mean that the endpoint
// answers; any other status that it is not ready, and it is used only if nothing
// better is there. So is one that answers heartbeats and leaves a request
// unanswered for more than a minute. Every heartbeat is a race: the endpoint in
// use runs first, or the last good one. If it fails or is late, all others start
// at once, and the first good answer wins. The Service address in a pod's
// environment runs last, when nothing else answered, and is left as soon as
// something else does. So a round in which all is well is one request. A request
// or a watch that fails starts a race, and requests wait for its end. Each agent
// has an order of its own among endpoints of the same source, or all the nodes of
// a cluster would begin with the same server.
//
// Endpoints that stand by are asked every ten minutes, so that it shows before
// they are needed that one of them is dead or something else.
//
// An endpoint in use is left only for another one. While nobody answers, its
// watches go on for as long as its connections do. When it is left, all its
// connections close, and watches end in a way that lets client-go go on where
// it was, without a new list.
//
// # Trust
//
// Each endpoint has to prove with its certificate that it is the API server
// before it gets a token. The kubeconfig's own server must have its host name, or
// its tls-server-name, as with client-go; --api-server the host that it says, or
// one of the names that follow. A learned address has to have
// kubernetes.default.svc, which is in the certificate of every API server, or the
// name of the kubeconfig's own server. To have the address is not enough: the
// authority of many clusters signs that for kubelets as well. Where something else answers, the endpoint is foreign: it is
// tried again only once a source names it anew, or once a minute when nobody
// else answers, for a certificate authority may have been in the middle of a
// change. A certificate that is not valid at this time makes an endpoint
// silent, not foreign, since the clock may be wrong. Learned addresses are used
// only with a certificate authority of the cluster's own: neither
// insecure-skip-tls-verify nor the machine's list of public authorities says that
// whoever has an address today is the API server.
//
// Token files, client certificates and the certificate authority are read again
// when they change.
//
// # Sockets
//
// Every socket, that of the name resolver included, is marked before it connects
// (Config.Exempt), so that the agent's own programs leave it alone. If that
// fails, the connection fails. Credential plugins of a kubeconfig are processes
// of their own, and are not exempt.
//
// No table, no map and no Service may enter this package; what an address is
// used for besides talking to the API is not its business.
package apiserver

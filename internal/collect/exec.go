// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// exec runs a program in a container, as kubectl exec does.
func (c *cluster) exec(ctx context.Context, p pod, argv []string) (output, error) {
	request := c.typed.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.namespace).Name(p.name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: p.container, Command: argv, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	config, err := c.way.Direct()
	if err != nil {
		return output{}, err
	}
	run, err := executor(config, request)
	if err != nil {
		return output{}, fmt.Errorf("prepare to run %s in %s/%s: %w", argv[0], p.namespace, p.name, err)
	}
	var out, wrong bounded
	if err := run.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &wrong}); err != nil {
		return out.output(), failure(err, wrong.kept.String())
	}
	return out.output(), nil
}

// executor speaks WebSocket, and SPDY to API servers, or through proxies, that
// do not.
func executor(config *rest.Config, request *rest.Request) (remotecommand.Executor, error) {
	at := request.URL()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	at.Scheme, at.Host = base.Scheme, base.Host
	old, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, at)
	if err != nil {
		return nil, err
	}
	socket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, at.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

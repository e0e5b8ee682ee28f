// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/guard"
	"github.com/fairlead-io/fairlead/internal/healthcheck"
)

// guardFlags are the flags of guard as they were given.
type guardFlags struct {
	listen, metrics   string
	certFile, keyFile string
	kubeconfig        string
	enforce, warn     bool
	secrets, verbose  bool
}

func newGuard(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Judge deletes as the API server is asked for them, and warn or deny",
		Long: `Answer the API server's question, as a validating admission webhook, whether an object
may be deleted: by what is watched of the cluster, and before it is gone. Judged are
objects that carry the label fairlead.io/guard=on, or are in a namespace that does.

Where something in use would break, kubectl prints a warning that says what people
would see; with --enforce the delete is denied. The annotation
fairlead.io/delete-anyway=REASON lets an object go all the same, and leaves a trace in
the audit log, in the guard's log and in its metrics.

A delete is judged alone, and after those that were allowed in the last 30 s. While the
guard does not know enough it lets everything pass, with a warning.

It runs in the cluster, as fairlead guard manifests has it. It listens on all addresses
unless told otherwise, since the API server must reach it: whoever else does can ask
what a delete would break, and nothing more. Metrics are served on the loopback address.

Exit status: 0 it was told to end, 2 it could not run.`,
		Example: e.examples(
			"fairlead guard manifests | kubectl apply -f -",
			"kubectl label clusterrole cilium fairlead.io/guard=on",
			"kubectl delete clusterrole cilium --dry-run=server   # only the warnings",
			`kubectl annotate clusterrole cilium fairlead.io/delete-anyway="moving to another network"`,
			"fairlead guard --tls-cert tls.crt --tls-key tls.key --enforce --kubeconfig ~/.kube/config"),
		Args: noArguments,
	}
	f := &guardFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", ":9443", "`ADDRESS:PORT` at which the API server asks, over TLS")
	flags.StringVar(&f.certFile, "tls-cert", "", "`FILE` of the serving certificate; read again when it changes")
	flags.StringVar(&f.keyFile, "tls-key", "", "`FILE` of its key")
	flags.StringVar(&f.metrics, "metrics-bind-address", "127.0.0.1:9444", "`ADDRESS:PORT` of /metrics; empty: none")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server; in a pod its service account does if empty")
	flags.BoolVar(&f.enforce, "enforce", false, "deny what would break something in use")
	flags.BoolVar(&f.warn, "warn", false, "warn only, which is the default")
	flags.BoolVar(&f.secrets, "watch-secrets", false, "watch the names of Secrets and ConfigMaps too, for which it needs the right to list them")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log what is allowed, too")
	cmd.MarkFlagsMutuallyExclusive("enforce", "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.certFile == "" || f.keyFile == "" {
			return seeHelp(cmd, "give --tls-cert and --tls-key: an API server asks over TLS only, and fairlead guard manifests makes a certificate")
		}
		return e.guard(cmd.Context(), f)
	}
	cmd.AddCommand(newGuardManifests(e))
	return cmd
}

// guard watches and answers until ctx ends, or one of its parts fails.
func (e *env) guard(parent context.Context, f *guardFlags) error {
	log := e.guardLog(f.verbose)
	config, err := apiserver.RESTConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	cluster, err := guard.NewCluster(config, f.secrets, log)
	if err != nil {
		return err
	}
	metrics := guard.NewMetrics(func() bool { _, err := cluster.State(); return err == nil })
	certificate, err := guard.NewCertificate(f.certFile, f.keyFile, metrics.CertificateExpires, log)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(parent, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listening on --listen=%s: %w", f.listen, err)
	}
	log.Info("guarding deletes", "listen", listener.Addr().String(), "enforce", f.enforce, "version", buildVersion())
	ctx, stop := context.WithCancel(parent)
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	others.Go(func() { cluster.Run(ctx) })
	if f.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", metrics.Handler(log))
		// It ends with its context only.
		others.Go(func() { _ = healthcheck.NewServer("/metrics", f.metrics, mux, log).Run(ctx) })
	}
	return guard.Serve(ctx, listener, certificate, guard.New(cluster, f.enforce, metrics, log).Handler(), log)
}

// guardLog is for programs: who deleted what, and why, is looked up there.
func (e *env) guardLog(verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewJSONHandler(e.err, &slog.HandlerOptions{Level: level}))
}

func newGuardManifests(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print what a cluster needs to have its deletes judged, with a fresh certificate",
		Long: `Print the manifests of a guard: its account with the rights to list and watch what it
judges by, a serving certificate made for this output, a Deployment and a Service, the
webhook configuration, and the admission policy that holds while the guard is away.

The output holds a private key. The namespace must be there. Applied again, with a new
certificate, it replaces the old one; kubectl delete -f of it takes everything away.`,
		Example: e.examples(
			"fairlead guard manifests --image registry.example.com/fairlead:v1 | kubectl apply -f -",
			"fairlead guard manifests --enforce --namespace guard | kubectl apply -f -",
			"fairlead guard manifests --url https://192.0.2.10:9443/validate   # it runs elsewhere"),
		Args: noArguments,
	}
	o := guard.ManifestOptions{}
	warn := false
	flags := cmd.Flags()
	flags.StringVarP(&o.Namespace, "namespace", "n", "kube-system", "`NAMESPACE` of the guard")
	flags.StringVar(&o.Image, "image", "fairlead:latest", "`IMAGE` with the program fairlead")
	flags.BoolVar(&o.Enforce, "enforce", false, "deny what would break something in use, and what the policy guards")
	flags.BoolVar(&warn, "warn", false, "warn only, which is the default")
	flags.BoolVar(&o.Secrets, "watch-secrets", false, "watch the names of Secrets and ConfigMaps too; the right to list them is the right to read them")
	flags.BoolVar(&o.AllRBAC, "all-rbac", false, "have deletes of all RBAC objects judged, labelled or not; of those without the label none is denied")
	flags.StringVar(&o.URL, "url", "", "`URL` at which a guard answers that runs outside of the cluster; then no Deployment is printed")
	cmd.MarkFlagsMutuallyExclusive("enforce", "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.URL != "" && (cmd.Flags().Changed("image")) {
			return errors.New("--image is of the Deployment, which --url leaves out: give one of them")
		}
		return guard.Manifests(e.out, o, time.Now())
	}
	return cmd
}

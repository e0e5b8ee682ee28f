// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/helm"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/internal/rights/source"
)

func newRBAC(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Say what a component may do, needs to do, and did",
		Long: `Look at the rights of a service account, or of any user, from every side that knows
of them: the bindings that there are, were or should be, audit logs, the component's
own log, and what is known of components without which a cluster has no network.`,
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRBACNeeds(e), newRBACUsed(e), newRBACCompare(e))
	return cmd
}

// subjectFlags say whose rights they are.
type subjectFlags struct {
	namespace string
	user      string
	groups    []string
}

func (f *subjectFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "`NAMESPACE` of a service account that is named without one")
	flags.StringVar(&f.user, "user", "", "look at the user `NAME` rather than at a service account: system:kube-controller-manager")
	flags.StringSliceVar(&f.groups, "group", nil, "`GROUP` that the user of --user is in, besides system:authenticated; repeatable")
}

// read returns the user that arguments and flags name, if they name one.
func (f *subjectFlags) read(args []string) (user rbac.User, named bool, err error) {
	switch {
	case len(args) > 1:
		return user, false, fmt.Errorf("name one service account, not %d", len(args))
	case len(args) == 1 && f.user != "":
		return user, false, errors.New("name a service account or give --user, not both")
	case f.user != "":
		if namespace, name := rbac.AccountOf(f.user); name != "" {
			return rbac.ServiceAccount(namespace, name), true, nil
		}
		return rbac.User{Name: f.user, Groups: append([]string{"system:authenticated"}, f.groups...)}, true, nil
	case len(f.groups) > 0:
		return user, false, errors.New("--group is about a user: give --user too")
	case len(args) == 0:
		return user, false, nil
	}
	namespace, name, qualified := strings.Cut(args[0], "/")
	if !qualified {
		namespace, name = f.namespace, args[0]
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return user, false, fmt.Errorf("%q is no service account: write NAME or NAMESPACE/NAME", args[0])
	}
	return rbac.ServiceAccount(namespace, name), true, nil
}

// need is read where there must be somebody.
func (f *subjectFlags) need(cmd *cobra.Command, args []string) (rbac.User, error) {
	user, named, err := f.read(args)
	if err == nil && !named {
		err = errors.New("name a service account, or give --user")
	}
	if err != nil {
		return user, seeHelp(cmd, "%w", err)
	}
	return user, nil
}

// grantFlags say where bindings are read.
type grantFlags struct {
	kubeconfig  string
	journal, at string
	release     string
	manifests   []string
	// api is where bindings and releases are read; nil: nowhere. Nobody named it if
	// it is kubectl's, so that others have to do while it does not answer. It may be
	// there for the release alone.
	api         *rest.Config
	kubectls    bool
	releaseOnly bool
}

func (f *grantFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server; if empty, in a pod its service account does, and elsewhere kubectl's own unless other sources are given")
	flags.StringVar(&f.journal, "journal", "", "journal's `FILE`: the bindings that it recorded")
	flags.StringVar(&f.at, "at", "", "the moment in the journal, a `TIME` as 2026-01-02T15:04:05Z, or how long ago as 30m; its end if empty")
	flags.StringVar(&f.release, "helm-release", "", "the bindings of the Helm release `NAMESPACE/NAME`, as it was deployed last")
	flags.StringSliceVarP(&f.manifests, "filename", "f", nil, "the bindings of the manifest `FILE`, - for standard input; repeatable")
}

// reach finds the API server. Where no flag names any source of the same, it is the
// one that kubectl would ask.
func (f *grantFlags) reach(others bool) (err error) {
	switch {
	case f.kubeconfig != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		f.api, err = apiserver.RESTConfig(f.kubeconfig)
		return err
	case others && f.release == "":
		return nil
	}
	f.api, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && f.release != "":
		return errors.New("--helm-release is read from the API server: give --kubeconfig")
	case clientcmd.IsEmptyConfig(err):
		return nil
	case err != nil:
		return fmt.Errorf("read how kubectl reaches the API server: %w: give --kubeconfig", err)
	}
	f.kubectls, f.releaseOnly, f.api.QPS = true, others, -1
	return nil
}

// others says whether bindings are read from anywhere else.
func (f *grantFlags) others() bool { return f.journal != "" || len(f.manifests) > 0 }

// grants are the bindings of one source.
type grants struct {
	source string
	policy *rbac.Policy
}

// known is what there is to say of a user besides his use.
type known struct {
	// grants are those of each source: the API server first, then the journal, the
	// manifests, and the Helm release.
	grants []grants
	pods   []corev1.Pod // of the service account
	// unread is why an API server that nobody named gave no bindings.
	unread error
}

// readGrants asks each source that the flags name.
func (e *env) readGrants(ctx context.Context, f *grantFlags, user rbac.User) (known, error) {
	var k known
	if f.at != "" && f.journal == "" {
		return k, errors.New("--at is about a journal: give --journal too")
	}
	var client kubernetes.Interface
	if f.api != nil {
		var err error
		if client, err = kubernetes.NewForConfig(f.api); err != nil {
			return k, err
		}
	}
	done := e.whileBusy(func() string { return "reading roles and bindings" })
	defer done()
	if client != nil && !f.releaseOnly {
		objects, err := source.Live(ctx, client)
		switch {
		case err == nil:
			k.grants = append(k.grants, grants{"bindings", objects.Policy()})
			k.pods = e.podsOf(ctx, client, user)
		case f.kubectls && f.release == "":
			k.unread = err
		default:
			return k, err
		}
	}
	if f.journal != "" {
		g, err := e.recordedGrants(ctx, f)
		if err != nil {
			return k, err
		}
		k.grants = append(k.grants, g)
	}
	if len(f.manifests) > 0 {
		g, err := e.manifestGrants(f.manifests, user)
		if err != nil {
			return k, err
		}
		k.grants = append(k.grants, g)
	}
	if f.release != "" {
		g, err := releaseGrants(ctx, client, f.release)
		if err != nil {
			return k, err
		}
		k.grants = append(k.grants, g)
	}
	return k, nil
}

// podsOf are the pods that run as a service account, by which its component is
// known. Who may not list them knows it by its name.
func (e *env) podsOf(ctx context.Context, client kubernetes.Interface, user rbac.User) (pods []corev1.Pod) {
	namespace, name := rbac.AccountOf(user.Name)
	if name == "" {
		return nil
	}
	all, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.serviceAccountName=" + name})
	if err != nil {
		e.warn("its pods are not known, so its component is known by its name alone: list pods in %s: %v", namespace, err)
		return nil
	}
	for i := range all.Items {
		if rbac.IsItsAccount(&all.Items[i].Spec) {
			pods = append(pods, all.Items[i])
		}
	}
	return pods
}

func (e *env) recordedGrants(ctx context.Context, f *grantFlags) (grants, error) {
	at, err := readTime("--at", f.at, time.Now())
	if err != nil {
		return grants{}, err
	}
	j, err := journal.Open(f.journal)
	if err != nil {
		return grants{}, err
	}
	defer j.Close()
	objects, err := source.Recorded(ctx, j, at)
	if errors.Is(err, journal.ErrTorn) {
		e.warn("%v", err)
	} else if err != nil {
		return grants{}, fmt.Errorf("read the bindings in %s: %w", f.journal, err)
	}
	filter := journal.Filter{Kinds: source.Kinds}
	if !at.IsZero() {
		filter.Since, filter.Until = at, at.Add(1)
		gaps, err := j.Gaps(ctx, filter)
		if err != nil {
			return grants{}, err
		}
		e.warnOfGaps(gaps)
		if err := e.warnOfEnd(ctx, j, at); err != nil {
			return grants{}, err
		}
	}
	return grants{"journal", objects.Policy()}, nil
}

// manifestGrants are those of all manifests together: one may bind the role of
// another.
func (e *env) manifestGrants(paths []string, user rbac.User) (grants, error) {
	namespace, _ := rbac.AccountOf(user.Name)
	objects := &source.Objects{}
	for _, path := range paths {
		if err := e.reading("the manifest", path, func(in io.Reader) error { return objects.AddManifests(in, namespace) }); err != nil {
			return grants{}, err
		}
	}
	return grants{"manifests", objects.Policy()}, nil
}

// reading gives a file, or standard input, to who reads it.
func (e *env) reading(what, path string, read func(io.Reader) error) error {
	in := e.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open %s: %w", what, err)
		}
		defer file.Close()
		in = file
	}
	if err := read(in); err != nil {
		return fmt.Errorf("read %s %s: %w", what, path, err)
	}
	return nil
}

func releaseGrants(ctx context.Context, client kubernetes.Interface, release string) (grants, error) {
	namespace, name, err := releaseName("", release)
	if err != nil {
		return grants{}, fmt.Errorf("--helm-release %w", err)
	}
	found, err := helm.Find(ctx, client, namespace, name, 0)
	if err != nil {
		return grants{}, err
	}
	objects := &source.Objects{}
	if err := objects.AddManifests(strings.NewReader(found.Manifest), found.Namespace); err != nil {
		return grants{}, fmt.Errorf("read the manifest of Helm release %s: %w", release, err)
	}
	return grants{"Helm release " + release, objects.Policy()}, nil
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/test/kube"
)

// TestPreflight plays scripts on a real API server, with its own kubectl in
// PATH. Each script has a namespace of its own name.
func TestPreflight(t *testing.T) {
	cluster := kube.Start(t)
	kubectl := filepath.Dir(cluster.Program("kubectl"))
	cache := t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/preflight",
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", cluster.Kubeconfig)
			env.Setenv("LIMITED", cluster.LimitedKubeconfig)
			env.Setenv("KUBECACHEDIR", filepath.Join(cache, filepath.Base(env.WorkDir)))
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+kubectl)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": expectStatus,
		},
		UpdateScripts: *update,
	})
}

// Between judgement and answer a selector may come to match more, or less.
func TestWhatWasNotJudgedIsNotDeleted(t *testing.T) {
	cluster := kube.Start(t)
	t.Setenv("KUBECACHEDIR", t.TempDir())
	create := func(name string) { cluster.Kubectl("create", "configmap", name) }
	create("old")
	create("older")
	cmd := &cobra.Command{Use: "delete"}
	f := addDeleteFlags(cmd)
	if err := cmd.ParseFlags([]string{"--all", "--kubeconfig", cluster.Kubeconfig}); err != nil {
		t.Fatal(err)
	}
	if err := f.check(cmd, []string{"configmaps"}); err != nil {
		t.Fatal(err)
	}
	var warned strings.Builder
	e := &env{in: strings.NewReader(""), out: &warned, err: &warned}
	j, err := f.judge(t.Context(), e)
	if err != nil || len(j.Roots) != 2 {
		t.Fatal(err, j)
	}
	cluster.Kubectl("delete", "configmap", "older")
	if err := f.unchanged(t.Context(), e, j); err != nil {
		t.Errorf("one went meanwhile: %v", err)
	}
	if want := "1 of the 2 objects that are named went meanwhile"; !strings.Contains(warned.String(), want) {
		t.Errorf("warned of %q, want %q", warned.String(), want)
	}
	// The same name is not the same object.
	create("older")
	want := "nothing was deleted: 1 object came meanwhile that would go too and was not judged: ConfigMap default/older"
	if err := f.unchanged(t.Context(), e, j); err == nil || err.Error() != want {
		t.Errorf("another came meanwhile: %v, want %s", err, want)
	}
}

// What kubectl is given says the same as what was judged.
func TestKubectlGetsWhatWasJudged(t *testing.T) {
	parse := func(t *rapid.T, args []string) (*cobra.Command, *deleteFlags) {
		cmd := &cobra.Command{Use: "delete"}
		f := addDeleteFlags(cmd)
		outputFlag(cmd, "name")
		f.addOwn(cmd, func(flags *pflag.FlagSet) { flags.Bool(readIt, false, "") })
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		f.args.Words = cmd.Flags().Args()
		return cmd, f
	}
	values := func(cmd *cobra.Command) (set []string) {
		cmd.Flags().Visit(func(flag *pflag.Flag) {
			if flag.Name != readIt {
				set = append(set, flag.Name+"="+flag.Value.String())
			}
		})
		return set
	}
	word := rapid.SampledFrom([]string{"pods", "web", "deploy/web", "a,b", "x y", "$(id)", "-l", "--all", "a=b,c!=d"})
	rapid.Check(t, func(t *rapid.T) {
		var args []string
		for range rapid.IntRange(0, 6).Draw(t, "flags") {
			flag := rapid.SampledFrom([]string{"-l", "--selector", "-n", "-f", "--field-selector", "--as-group", "--context"}).Draw(t, "flag")
			args = append(args, flag, word.Draw(t, "value"))
			args = append(args, rapid.SampledFrom([]string{"-A", "--all", "--all=false", "--cascade", "--cascade=orphan", "--wait=false", "-R", "-v=6",
				"--grace-period=3", "--timeout=1m0s", "--dry-run=server", "--" + readIt, "-oname", "--ignore-not-found=false"}).Draw(t, "more"))
		}
		args = append(append(args, "--"), rapid.SliceOfN(word, 0, 3).Draw(t, "words")...)
		cmd, f := parse(t, args)
		again, g := parse(t, f.kubectl(cmd)[1:])
		if have, want := values(again), values(cmd); !slices.Equal(have, want) {
			t.Fatalf("%q became %q: %q, want %q", args, f.kubectl(cmd), have, want)
		}
		if !slices.Equal(f.args.Words, g.args.Words) {
			t.Fatalf("%q became %q", f.args.Words, g.args.Words)
		}
	})
}

// The flags are kubectl's own, by the same short names, but for those of its
// own debugging and of basic authentication, which no API server has any more.
func TestFlagsAreKubectls(t *testing.T) {
	kubectl := kube.Start(t).Program("kubectl")
	var text strings.Builder
	for _, args := range [][]string{{"delete", "--help"}, {"options"}} {
		out, err := exec.Command(kubectl, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		text.Write(out)
	}
	theirs := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z-]+)=`).FindAllStringSubmatch(text.String(), -1) {
		theirs[m[2]] = m[1]
	}
	for _, name := range []string{"username", "password", "profile", "profile-output", "vmodule", "log-flush-frequency"} {
		if _, ok := theirs[name]; !ok {
			t.Errorf("kubectl has no --%s any more", name)
		}
		delete(theirs, name)
	}
	ours := map[string]string{}
	newDelete(&env{}).Flags().VisitAll(func(flag *pflag.Flag) { ours[flag.Name] = flag.Shorthand })
	delete(ours, readIt)
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("kubectl's flags, and ours:\n%s", diff)
	}
}

func TestWhatIsNotKnownInFewLines(t *testing.T) {
	const own = "the API server does not let you list them; which of them go too is not known"
	for name, tt := range map[string]struct{ lines, want []string }{
		"nothing":                             {},
		"one kind":                            {[]string{"pods: " + own}, []string{"pods: " + own}},
		"two of which the same is said":       {[]string{"pods: " + own, "nodes: " + own}, []string{"pods, nodes: " + own}},
		"what is said of few kinds is first":  {[]string{"pods: " + own, "nodes: " + own, "roles: a; who is bound is not known"}, []string{"roles: a; who is bound is not known", "pods, nodes: " + own}},
		"what is said of no kind is left":     {[]string{`get Pod shop/a: pods "a" is forbidden`, "pods: " + own}, []string{`get Pod shop/a: pods "a" is forbidden`, "pods: " + own}},
		"of very many some are named":         {slices.Repeat([]string{"k: " + own}, 20), []string{"k, k, k, k, k, k, k, k and 12 more: " + own}},
		"the same reason with other unknowns": {[]string{"pods: a; b is not known", "nodes: a; c is not known"}, []string{"pods: a; b is not known", "nodes: a; c is not known"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, together(tt.lines)); diff != "" {
				t.Errorf("(- wanted, + found)\n%s", diff)
			}
		})
	}
}

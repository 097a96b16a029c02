//go:build unix

package local

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kici/internal/agent/runner"
	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
	"kici/internal/decide/lifecycle"
)

// order is everything that a worker needs to run a job, as it was when the job began.
type order struct {
	fields   map[string]any // of the runner's request, but for the folder of the job
	env      []string
	checkout bool
	limitMs  int64
	graceMs  int64
	remarks  []string // for the job's log
	image    string   // of the container to run in; "" is this machine
}

// settings are the parts of a job's configuration that are not only the runner's.
type settings struct {
	JobEnv   map[string]any  `json:"jobEnv"`
	Checkout *bool           `json:"checkout"`
	Needs    json.RawMessage `json:"needs"`
	Host     string          `json:"host"`
}

// order collects what the job is started with. Secrets reach the runner in its request alone.
func (r *run) order(j *job) (order, error) {
	var c settings
	fields := map[string]any{}
	var given map[string]json.RawMessage
	for _, into := range []any{&c, &given} {
		if err := json.Unmarshal(j.plan.Config, into); err != nil {
			return order{}, fmt.Errorf("read the configuration of job %s: %w", j.state.Name, err)
		}
	}
	for name, value := range given {
		fields[name] = value
	}
	o := order{fields: fields, checkout: c.Checkout == nil || *c.Checkout, limitMs: j.plan.TimeoutMs, graceMs: j.plan.GraceMs}
	container, err := containerOf(given["container"])
	if err != nil {
		return order{}, fmt.Errorf("container of job %s: %w", j.state.Name, err)
	}
	switch {
	case r.o.Engine != nil && !j.state.Kind.Internal():
		o.image = cmp.Or(container.Image, DefaultImage)
	case container.Image != "":
		o.remarks = append(o.remarks, "The container of the job is not used: its steps run on this machine (--container uses it)")
	}
	for _, own := range []string{"timeout", "container", "steps"} {
		delete(fields, own)
	}
	o.env = r.environ(nil)
	base := variables(o.env)
	o.env = r.environ(c.JobEnv)
	if o.image != "" {
		o.env = r.containerEnviron(container.Env, c.JobEnv)
	}
	r.addRun(j, fields)
	if err := r.addUpstreams(j, fields); err != nil {
		return order{}, err
	}
	if len(c.Needs) > 0 {
		fields["jobNeeds"] = c.Needs
	}
	if o.limitMs > 0 {
		fields["jobTimeoutMs"] = o.limitMs
	}
	if j.plan.DynamicSource != nil {
		var source map[string]any
		if err := json.Unmarshal(j.plan.DynamicSource, &source); err != nil {
			return order{}, fmt.Errorf("read where job %s comes from: %w", j.state.Name, err)
		}
		source["event"] = r.in.Event // it is made again from what its generator saw
		fields["dynamicSource"], fields["generatorEnv"] = source, base
	}
	return o, nil
}

// addRun adds what is the same for all jobs, and the job's name and secrets.
func (r *run) addRun(j *job, fields map[string]any) {
	source := ""
	if r.in.Workflow.Source != nil {
		source = r.in.Workflow.Source.File
	}
	maps.Copy(fields, map[string]any{
		"runId": r.state.ID, "jobId": j.state.ID, "jobIdShort": j.state.ID[:8], "jobName": j.plan.BaseName, "sourceFile": source,
		"ref": r.in.Source.Ref, "branch": r.in.Source.Ref, "sha": r.in.Source.SHA, "repoIdentifier": r.in.Source.Repo,
		"event": r.in.Event, "isTestRun": true, "hasConcurrencyGroup": true, // only the loaded workflow tells; the runner looks
		"secrets": r.secretsOf(j), "namespacedSecrets": r.contextsOf(j),
	})
	if r.o.Debug {
		fields["logLevel"] = "debug"
	}
}

// secretsOf are the secrets of a job that no context brings: those for every job, and the secret outputs of the jobs that
// it needs, which never take the place of one that somebody wrote down.
func (r *run) secretsOf(j *job) map[string]string {
	secrets := map[string]string{}
	for _, name := range r.needsOf(j.state.Name) {
		if upstream := r.byName[name]; upstream != nil {
			maps.Copy(secrets, upstream.secrets)
		}
	}
	maps.Copy(secrets, r.o.Secrets.Common)
	return secrets
}

// contextsOf are the secrets of each context of a job, in the order in which they lie over one another.
func (r *run) contextsOf(j *job) lockfile.Ordered {
	list := lockfile.Ordered{}
	for _, context := range j.plan.Contexts {
		if secrets := r.o.Secrets.Contexts[context]; len(secrets) > 0 {
			raw, _ := json.Marshal(secrets) // texts always encode
			list = append(list, lockfile.Member{Key: context, Value: raw})
		}
	}
	return list
}

// environ is built from nothing; later layers win.
func (r *run) environ(jobEnv map[string]any) []string {
	return r.layers(variables(runner.Inherited(r.o.Environ)), nil, jobEnv)
}

// layers are the variables that do not come from a machine, over those that do.
func (r *run) layers(env map[string]string, container map[string]string, jobEnv map[string]any) []string {
	env["FORCE_COLOR"] = "1"
	maps.Copy(env, container)
	maps.Copy(env, r.o.Env)
	for name, value := range jobEnv {
		env[name] = fmt.Sprint(value) // texts, as planning has made them
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(env[name], "\x00") { // the kernel has no others
			list = append(list, name+"="+env[name])
		}
	}
	return list
}

func variables(list []string) map[string]string {
	byName := make(map[string]string, len(list))
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		byName[name] = value
	}
	return byName
}

// upstreams are the jobs that a job needs, but for those that only worked for them.
type upstreams struct {
	jobs   []lifecycle.Upstream
	bases  []string            // in order
	groups map[string][]string // group → names of its jobs that the job needs
}

func (r *run) upstreams(j *job) upstreams {
	up := upstreams{groups: map[string][]string{}}
	for _, name := range r.needsOf(j.state.Name) {
		u := r.byName[name]
		if u == nil || u.state.Kind.Internal() {
			continue
		}
		up.jobs = append(up.jobs, lifecycle.Upstream{Name: name, Base: u.plan.BaseName, Kind: ci.VariantKind(u.plan.VariantKind),
			Label: u.plan.VariantLabel, Status: u.state.Status, Outputs: u.outputs})
		if !slices.Contains(up.bases, u.plan.BaseName) {
			up.bases = append(up.bases, u.plan.BaseName)
		}
		if u.plan.Group != "" {
			up.groups[u.plan.Group] = append(up.groups[u.plan.Group], name)
		}
	}
	return up
}

// snapshot is what a generator reads of the jobs that it needs.
func (up upstreams) snapshot() (json.RawMessage, error) {
	outputs, err := lifecycle.UpstreamOutputs(up.bases, up.jobs)
	if err != nil {
		return nil, err
	}
	if outputs == nil {
		outputs = map[string]json.RawMessage{}
	}
	statuses := lifecycle.UpstreamStatuses(up.jobs, true)
	if statuses == nil {
		statuses = map[string]ci.JobStatus{}
	}
	return json.Marshal(map[string]any{"jobs": outputs, "groups": up.groups, "statuses": statuses})
}

// addUpstreams adds what the jobs that this one needs have left.
func (r *run) addUpstreams(j *job, fields map[string]any) error {
	up := r.upstreams(j)
	if len(up.jobs) == 0 {
		return nil
	}
	if j.state.Kind == ci.KindGenerator {
		snapshot, err := up.snapshot()
		fields["upstreamSnapshot"] = snapshot
		return err
	}
	outputs, err := lifecycle.UpstreamOutputs(up.bases, up.jobs)
	if err != nil {
		return fmt.Errorf("outputs that job %s needs: %w", j.state.Name, err)
	}
	if outputs != nil {
		fields["upstreamJobOutputs"] = outputs
	}
	fields["upstreamJobStatuses"] = lifecycle.UpstreamStatuses(up.jobs, true)
	if len(up.groups) > 0 {
		fields["upstreamGroups"] = up.groups
	}
	return nil
}

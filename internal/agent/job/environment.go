package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/agent/runner"
	"kici/internal/core/wire"
	"kici/internal/kit/redact"
)

// agentOnly never reaches a job, not even by the dispatch.
const agentOnly = "KICI_AGENT_TOKEN"

// runnerEnvironment is that of the job's runner.
func (j *Job) runnerEnvironment(box host.Box) []string {
	return j.environment(box, j.conf.Env, j.conf.EnvironmentVars, j.conf.JobEnv)
}

// environment is built from nothing; later layers win. Secrets are not in it: they reach steps through the request only.
// Without layers it is what a generator saw when it was called first, since it is not of one of its jobs.
func (j *Job) environment(box host.Box, layers ...map[string]any) []string {
	env := variables(runner.Inherited(j.shop.Environ))
	env["FORCE_COLOR"] = "1"
	for _, layer := range layers {
		for name, value := range layer {
			env[name] = variable(value)
		}
	}
	if j.conf.IsGlobalWorkflow {
		maps.Copy(env, map[string]string{
			"KICI_IS_GLOBAL_WORKFLOW": "true", "KICI_WORKFLOW_REPO_PATH": box.Path("workflow"),
			"KICI_SOURCE_REPO_PATH": box.Path("source"), "KICI_SOURCE_REPO": repoIdentifier(j.d.RepoURL),
			"KICI_SOURCE_BRANCH": j.d.Ref, "KICI_SOURCE_SHA": j.d.SHA, "KICI_WORKFLOW_REPO": j.conf.WorkflowRepo,
		})
	}
	maps.Copy(env, box.Env)
	delete(env, agentOnly)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if strings.ContainsAny(name, "=\x00") || name == "" || strings.Contains(env[name], "\x00") {
			continue // the kernel has no such variables
		}
		list = append(list, name+"="+env[name])
	}
	return list
}

// variables are a list of NAME=value by name.
func variables(list []string) map[string]string {
	byName := make(map[string]string, len(list))
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		byName[name] = value
	}
	return byName
}

// variable is a value of the dispatch as text. They are texts as a rule; a number or flag keeps its JSON form.
func variable(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		return ""
	case map[string]any, []any:
		raw, _ := json.Marshal(v) // it came out of JSON
		return string(raw)
	}
	return fmt.Sprint(v)
}

// sendContext tells the server in what surroundings the job runs, for people who wonder why it behaves otherwise than at
// home. Values that may be secret are masked before they leave.
func (j *Job) sendContext(env []string, workDir, kind string) {
	c := wire.Environment{
		Runtime:          wire.Runtime{OS: j.shop.Facts.Platform, Arch: j.shop.Facts.Arch},
		SandboxType:      kind,
		WorkingDirectory: workDir,
		GitRef:           j.d.Ref,
		Labels:           j.shop.Facts.Labels,
		EnvVars:          []wire.EnvVar{},
	}
	if v := j.shop.Facts.Node(); v != "" {
		c.Runtime.NodeVersion = "v" + v
	}
	seen := map[string]bool{}
	for _, kv := range append(slices.Clone(j.shop.Settings), env...) {
		name, value, _ := strings.Cut(kv, "=")
		if !seen[name] {
			seen[name] = true
			c.EnvVars = append(c.EnvVars, contextVariable(name, value, j.mask))
		}
	}
	j.shop.Ledger.Post(wire.JobContext{RunID: j.Ref.Run, JobID: j.Ref.ID, Context: c}, ledger.Entry{Keep: ledger.KeepWritten, Job: j.Ref})
}

var secretNames = []string{"TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL"}

func contextVariable(name, value string, mask *redact.Redactor) wire.EnvVar {
	upper := strings.ToUpper(name)
	if slices.ContainsFunc(secretNames, func(s string) bool { return strings.Contains(upper, s) }) {
		return wire.EnvVar{Name: name, Value: redact.Mask, Category: "secret"}
	}
	category := "user"
	if strings.HasPrefix(name, "KICI_") {
		category = "system"
	}
	return wire.EnvVar{Name: name, Value: mask.String(value), Category: category}
}

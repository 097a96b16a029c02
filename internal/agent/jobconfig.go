package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"kici/internal/core/ci"
)

// jobConfig is the part of a dispatch's configuration that the agent itself reads. The rest goes to the runner.
type jobConfig struct {
	WorkflowName      string          `json:"workflowName"`
	Name              string          `json:"name"`
	BaseJobName       string          `json:"baseJobName"`
	Source            json.RawMessage `json:"source"` // {file}, or a path for init jobs
	ContentHash       string          `json:"contentHash"`
	ResolvedHashFiles []string        `json:"resolvedHashFiles"`
	Timeout           float64         `json:"timeout"`     // ms
	GracePeriod       float64         `json:"gracePeriod"` // s
	Needs             json.RawMessage `json:"needs"`
	Env               map[string]any  `json:"env"`
	EnvironmentVars   map[string]any  `json:"environmentVars"`
	JobEnv            map[string]any  `json:"jobEnv"`
	Checkout          *bool           `json:"checkout"`
	IsTestRun         bool            `json:"isTestRun"`
	FullRepo          bool            `json:"fullRepo"`
	TarballURL        string          `json:"tarballUrl"`
	CLIPublicKey      string          `json:"cliPublicKey"`
	OrchestratorKey   string          `json:"orchestratorPrivateKey"`
	IsGlobalWorkflow  bool            `json:"isGlobalWorkflow"`
	WorkflowRepoURL   string          `json:"workflowRepoUrl"`
	WorkflowRef       string          `json:"workflowRef"`
	WorkflowSHA       string          `json:"workflowSha"`
	WorkflowRepo      string          `json:"workflowRepoIdentifier"`
	Container         json.RawMessage `json:"container"`
	BuildOnly         bool            `json:"buildOnly"`
	InitOnly          bool            `json:"initOnly"`
	DynamicJobFn      json.RawMessage `json:"dynamicJobFn"`
	BringupOnly       bool            `json:"bringupOnly"`
}

func truthy(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "0":
		return false
	}
	return true
}

// kind is what sort of job it is, by the order in which the protocol tells them apart.
func (c jobConfig) kind() string {
	switch {
	case c.InitOnly:
		return "init"
	case truthy(c.DynamicJobFn):
		return "dynamic"
	case c.BringupOnly:
		return "bring-up"
	case c.BuildOnly:
		return "build"
	}
	return ""
}

// supported refuses what this agent cannot do, with a reason for the person who looks at the failed job.
func (c jobConfig) supported(cfg Config) error {
	if kind := c.kind(); kind != "" {
		return fmt.Errorf("this agent does not run %s jobs: it loads workflows from their source and needs no job before them", kind)
	}
	if truthy(c.Container) || cfg.ExecutionMode == "container" {
		return errors.New("this agent does not start containers for jobs; leave the job's container out, " +
			"or run the agent itself in that image (a container scaler does)")
	}
	return nil
}

// addKind adds the flag by which the server knows the report of a job that works for others.
func (c jobConfig) addKind(data map[string]any, state ci.JobStatus) {
	if state == ci.JobSuccess {
		return
	}
	switch c.kind() {
	case "init":
		data["initFailed"] = true
	case "dynamic":
		data["dynamicFailed"] = true
	case "build":
		data["buildFailed"] = true
	}
}

func (c jobConfig) timeout() time.Duration { return time.Duration(c.Timeout) * time.Millisecond }

// grace is the time between the polite and the hard stop.
func (c jobConfig) grace() time.Duration {
	if c.GracePeriod <= 0 {
		return maxGrace
	}
	return min(time.Duration(c.GracePeriod*float64(time.Second)), maxGrace)
}

// jobName is the name under which the workflow knows the job.
func (c jobConfig) jobName() string {
	if c.BaseJobName != "" {
		return c.BaseJobName
	}
	return c.Name
}

// sourceFile is the workflow's file, relative to the repository; dispatches may leave the folder .kici out.
func (c jobConfig) sourceFile() string {
	var ref struct{ File string }
	var path string
	if json.Unmarshal(c.Source, &ref) != nil {
		_ = json.Unmarshal(c.Source, &path) // neither form: the default below
	}
	file := ref.File
	if file == "" {
		file = path
	}
	switch {
	case file == "":
		return ".kici/workflows/ci.ts"
	case strings.HasPrefix(file, ".kici/"):
		return file
	}
	return ".kici/" + file
}

func (c jobConfig) checkout() bool { return c.Checkout == nil || *c.Checkout }

// request is what the runner gets: the configuration with the dispatch's data, without what only the agent needs.
// Secrets reach the runner this way alone.
func (j *job) request(workDir string) json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(j.d.JobConfig, &fields) // it has been read before
	for _, own := range []string{"tarballUrl", "cliPublicKey", "orchestratorPrivateKey", "timeout", "container", "steps"} {
		delete(fields, own)
	}
	short := j.d.JobID
	if len(short) > 8 {
		short = short[:8]
	}
	set := func(name string, v any) {
		if raw, err := json.Marshal(v); err == nil && string(raw) != "null" {
			fields[name] = raw
		}
	}
	for name, v := range map[string]any{
		"runId": j.d.RunID, "jobId": j.d.JobID, "jobIdShort": short, "ref": j.d.Ref, "branch": j.d.Ref, "sha": j.d.SHA,
		"workDir": workDir, "jobName": j.conf.jobName(), "sourceFile": j.conf.sourceFile(),
		"checkout": j.conf.checkout(), "isTestRun": j.conf.IsTestRun, "fullRepo": j.conf.FullRepo,
		"defaultStepTimeoutMs":     j.a.cfg.StepTimeout.Milliseconds(),
		"concurrencyWaitTimeoutMs": j.a.cfg.ConcurrencyWait.Milliseconds(),
		"secrets":                  j.d.Secrets, "namespacedSecrets": j.d.NamespacedSecrets,
		"upstreamJobOutputs": j.d.UpstreamJobOutputs, "upstreamJobStatuses": j.d.UpstreamJobStatuses,
		"runPublicKey": nonEmpty(j.d.RunPublicKey), "jobNeeds": j.conf.Needs, "repoIdentifier": repoIdentifier(j.d.RepoURL),
	} {
		set(name, v)
	}
	if j.conf.Timeout > 0 {
		set("jobTimeoutMs", j.conf.Timeout)
	}
	if _, given := fields["hasConcurrencyGroup"]; !given {
		set("hasConcurrencyGroup", true) // only the loaded workflow tells; the runner looks
	}
	if j.a.log.Enabled(j.ctx, -4) {
		set("logLevel", "debug")
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return json.RawMessage("{}") // every value above has just been encoded
	}
	return raw
}

func nonEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// repoIdentifier is the URL without scheme, host and .git.
func repoIdentifier(url string) string {
	_, rest, ok := strings.Cut(url, "://")
	if ok {
		_, rest, _ = strings.Cut(rest, "/")
	} else if _, path, scp := strings.Cut(url, ":"); scp {
		rest = path
	} else {
		rest = url
	}
	return strings.TrimSuffix(strings.Trim(rest, "/"), ".git")
}

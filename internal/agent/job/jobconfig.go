package job

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"kici/internal/agent/host"
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
	InitOnly          bool            `json:"initOnly"`
	DynamicJobFn      json.RawMessage `json:"dynamicJobFn"`
	DynamicSource     json.RawMessage `json:"dynamicSource"` // of a generated job
	BringupOnly       bool            `json:"bringupOnly"`
	BuildOnly         bool            `json:"buildOnly"`
	BuildSourceNeeded bool            `json:"buildSourceNeeded"`
	BuildDepsNeeded   bool            `json:"buildDepsNeeded"`
	LockfileHash      string          `json:"lockfileHash"`
	TargetPlatform    string          `json:"targetPlatform"`
	TargetArch        string          `json:"targetArch"`
}

func truthy(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`, "0":
		return false
	}
	return true
}

// supported refuses what this agent cannot do, with a reason for the person who looks at the failed job.
func (c jobConfig) supported(place host.Place) error {
	if c.BringupOnly && c.kind() == bringUp {
		return errors.New("this agent cannot reach other hosts by SSH, which bringing up an agent there needs")
	}
	if c.kind() == standard && (truthy(c.Container) || place.Kind == "container") {
		return errors.New("this agent does not start containers for jobs; leave the job's container out, " +
			"or run the agent itself in that image (a container scaler does)")
	}
	return nil
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
func (j *Job) request(box host.Box) json.RawMessage {
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
		"workDir": box.WorkDir, "jobName": j.conf.jobName(), "sourceFile": j.conf.sourceFile(),
		"checkout": j.conf.checkout(), "isTestRun": j.conf.IsTestRun, "fullRepo": j.conf.FullRepo,
		"defaultStepTimeoutMs":     j.shop.StepTimeout.Milliseconds(),
		"concurrencyWaitTimeoutMs": j.shop.ConcurrencyWait.Milliseconds(),
		"secrets":                  j.d.Secrets, "namespacedSecrets": j.d.NamespacedSecrets,
		"upstreamJobOutputs": j.d.UpstreamJobOutputs, "upstreamJobStatuses": j.d.UpstreamJobStatuses,
		"runPublicKey": nonEmpty(j.d.RunPublicKey), "jobNeeds": j.conf.Needs, "repoIdentifier": repoIdentifier(j.d.RepoURL),
	} {
		set(name, v)
	}
	if j.conf.Timeout > 0 {
		set("jobTimeoutMs", j.conf.Timeout)
	}
	if truthy(j.conf.DynamicSource) {
		set("generatorEnv", variables(j.environment(box)))
	}
	if _, given := fields["hasConcurrencyGroup"]; !given {
		set("hasConcurrencyGroup", true) // only the loaded workflow tells; the runner looks
	}
	if j.log.Enabled(j.ctx, -4) {
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

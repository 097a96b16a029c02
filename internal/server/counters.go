package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"kici/internal/core/ci"
	"kici/internal/kit/telemetry"
	"kici/internal/server/dispatch"
	"kici/internal/server/engine"
	"kici/internal/server/events"
	"kici/internal/server/report"
)

// Bounds of labels that senders and authors choose.
const (
	maxEvents = 50
	maxLabels = 200
	maxScopes = 100
)

// counters are the metrics that something is counted into.
type counters struct {
	received, processed, duplicates, shed *telemetry.Counter
	dropped                               *telemetry.Counter

	depth, depthByLabel       *telemetry.Gauge
	executions, steps, silent *telemetry.Counter
	duration, silence, build  *telemetry.Histogram
	stale, unreachable        *telemetry.Gauge

	turns                           *telemetry.Counter
	turn                            *telemetry.Histogram
	lastGood, lastBad, failedInARow *telemetry.Gauge
	inARow                          map[string]int // failures; each loop has one turn at a time, and mu is for the map
	mu                              sync.Mutex
	matching                        *telemetry.Histogram
	lost                            *telemetry.Counter

	installDecisions, registries, stripped *telemetry.Counter
	installResolution                      *telemetry.Histogram

	labels map[string]bool // that the depth was ever shown for; the watcher's of the queue alone
}

func newCounters(r *telemetry.Registry) *counters {
	label := func(name string) telemetry.Label { return telemetry.Label{Name: name} }
	c := &counters{
		received: r.Counter("kici_orch_webhooks_received_total", "Deliveries received, by the way they came and their event.",
			label("source"), telemetry.Label{Name: "event", Cap: maxEvents}),
		processed:  r.Counter("kici_orch_webhooks_processed_total", "Deliveries processed, by result.", label("result")),
		duplicates: r.Counter("kici_orch_dedup_hits_total", "Deliveries that had been seen before."),
		shed:       r.Counter("kici_orch_ingest_shed_total", "Deliveries refused under load, by reason.", label("reason")),
		dropped:    r.Counter("kici_orch_events_dropped_total", "Events of workflows that nothing acted on, by reason.", label("reason")),

		depth: r.Gauge("kici_orch_dispatch_queue_depth", "Jobs that wait for an agent or are with one.", label("status")),
		depthByLabel: r.Gauge("kici_orch_dispatch_queue_depth_by_label", "Jobs that wait for an agent, once under each label that they name.",
			label("status"), telemetry.Label{Name: "label", Cap: maxLabels}),
		executions: r.Counter("kici_orch_executions_total", "Runs that ended at this node, by status.", label("status")),
		steps:      r.Counter("kici_orch_steps_total", "Steps of runs that ended at this node: running for each that ran, and how they ended.", label("status")),
		silent:     r.Counter("kici_orch_stale_runs_detected_total", "Jobs given up for want of a sign of life."),
		duration: r.Histogram("kici_orch_execution_duration_seconds", "Time from the start of a run to its end.",
			[]float64{1, 5, 10, 30, 60, 120, 300, 600, 1800}),
		silence: r.Histogram("kici_orch_stale_detection_duration_seconds", "Silence of a job until it was given up.",
			[]float64{10, 30, 60, 120, 300, 600}),
		build: r.Histogram("kici_orch_build_duration_seconds", "Time that a build of sources and dependencies took.",
			[]float64{1, 5, 10, 30, 60, 120, 300, 600}),
		stale:       r.Gauge("kici_orch_stale_runs_current", "Runs with a running job that gives no sign of life."),
		unreachable: r.Gauge("kici_orch_declared_hosts_unreachable", "Static agents that are not connected to any node. One node shows it."),
		installDecisions: r.Counter("kici_orch_install_secrets_decisions_total",
			"What was decided about the secrets with which workflows install, when a run was made and after each hold of it.", label("decision"), label("reason")),
		registries: r.Counter("kici_orch_install_secrets_npm_registry_used_total",
			"Tokens of registries given to jobs, by what the job is for, the provider of its source and the scope of the registry.", label("channel"), label("provider"),
			telemetry.Label{Name: "scope", Cap: maxScopes}),
		stripped: r.Counter("kici_orch_install_secrets_contributor_stripped_total",
			"Runs that install without secrets, since their contributor is not trusted.", label("trust_tier")),
		installResolution: r.Histogram("kici_orch_install_secrets_token_resolution_duration_seconds",
			"Time to read the secrets with which a job installs, for each context that they are of.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5}, telemetry.Label{Name: "environment", Cap: maxScopes}),
		labels: map[string]bool{},

		turns: r.Counter("kici_orch_job_runs_total", "Turns of the maintenance of this node, by what it does and the result.", label("job"), label("result")),
		turn: r.Histogram("kici_orch_job_duration_seconds", "Time that a turn of the maintenance took.",
			[]float64{.01, .05, .1, .5, 1, 5, 30, 120, 600}, label("job")),
		lastGood:     r.Gauge("kici_orch_job_last_success_timestamp_seconds", "When a turn of the maintenance went well last.", label("job")),
		lastBad:      r.Gauge("kici_orch_job_last_failure_timestamp_seconds", "When a turn of the maintenance failed last.", label("job")),
		failedInARow: r.Gauge("kici_orch_job_consecutive_failures", "Turns of the maintenance that failed since one went well.", label("job")),
		inARow:       map[string]int{},
		matching: r.Histogram("kici_orch_trigger_match_duration_seconds", "Time to match a delivery with the workflows of its repository.",
			[]float64{.001, .005, .01, .05, .1, .5, 1, 5}),
		lost: r.Counter("kici_orch_pg_pool_client_errors_total", "Connections to PostgreSQL that ended by themselves, while they were idle or in use.", label("source")),
	}
	for _, source := range []string{idleConnection, usedConnection} {
		c.lost.Add(0, source)
	}
	// No configuration is shared between the nodes in this release.
	r.Gauge("kici_orch_config_version", "Version of the shared configuration that is in effect, 0 for none.").Set(0)
	for _, d := range installDecisions {
		c.installDecisions.Add(0, d[0], d[1])
	}
	for _, tier := range []ci.Tier{ci.TierUnknown, ci.TierKnown} {
		c.stripped.Add(0, string(tier))
	}
	c.showDepth(dispatch.Depth{})
	for _, g := range []*telemetry.Gauge{c.stale, c.unreachable} {
		g.Set(0)
	}
	for _, reason := range events.DropReasons {
		c.dropped.Add(0, reason)
	}
	for _, s := range []ci.RunStatus{ci.RunSuccess, ci.RunFailed, ci.RunCancelled} {
		c.executions.Add(0, string(s))
	}
	for _, s := range []ci.StepStatus{ci.StepRunning, ci.StepSuccess, ci.StepFailed, ci.StepSkipped} {
		c.steps.Add(0, string(s))
	}
	return c
}

// showDepth shows a sample of the queue. A label that was shown once stays, with 0, so that an alert on it ends.
func (c *counters) showDepth(d dispatch.Depth) {
	c.depth.Set(float64(d.Pending), string(ci.QueuePending))
	c.depth.Set(float64(d.Dispatched), string(ci.QueueDispatched))
	for l := range d.ByLabel {
		if len(c.labels) < maxLabels {
			c.labels[l] = true
		}
	}
	beyond := 0
	for l, n := range d.ByLabel {
		if !c.labels[l] {
			beyond += n
		}
	}
	for l := range c.labels {
		c.depthByLabel.Set(float64(d.ByLabel[l]), string(ci.QueuePending), l)
	}
	if beyond > 0 || len(c.labels) == maxLabels {
		c.depthByLabel.Set(float64(beyond), string(ci.QueuePending), telemetry.Overflow)
	}
}

func (c *counters) countRun(r report.EndedRun) {
	c.executions.Inc(string(r.Status))
	c.duration.Observe(float64(r.DurationMs) / 1000)
	c.steps.Add(float64(r.Started), string(ci.StepRunning))
	for status, n := range r.Steps {
		if status != ci.StepRunning {
			c.steps.Add(float64(n), string(status))
		}
	}
	for _, ms := range r.Builds {
		c.build.Observe((time.Duration(ms) * time.Millisecond).Seconds())
	}
	c.silent.Add(float64(len(r.Silences)))
	for _, ms := range r.Silences {
		c.silence.Observe((time.Duration(ms) * time.Millisecond).Seconds())
	}
}

// installDecisions are all that can be decided about install secrets, with the reasons.
var installDecisions = [][2]string{{engine.InstallPass, ""}, {engine.InstallStrip, "contributor"},
	{engine.InstallHold, string(ci.HoldSecurity)}, {engine.InstallHold, string(ci.HoldConcurrency)}, {engine.InstallHold, string(ci.HoldReviewer)},
	{engine.InstallHold, string(ci.HoldTimer)}, {engine.InstallReject, "reference"}, {engine.InstallReject, "unavailable"},
	{engine.InstallReject, "context"}, {engine.InstallReject, "secret"}}

func (c *counters) installJudged(j engine.InstallJudgement) {
	c.installDecisions.Inc(j.Decision, j.Reason)
	if j.Decision == engine.InstallStrip {
		c.stripped.Inc(string(j.Tier))
	}
}

// registryUsed counts a token that was given to a job of that kind. A routing key begins with the provider of its source.
func (c *counters) registryUsed(kind ci.JobKind, routingKey, scope string) {
	provider, _, _ := strings.Cut(routingKey, ":")
	c.registries.Inc(string(kind), provider, scope)
}

// installResolved counts the time for each of the contexts, which were read together.
func (c *counters) installResolved(contexts []string, took time.Duration) {
	for _, name := range contexts {
		c.installResolution.Observe(took.Seconds(), name)
	}
}

// watchQueue shows the depth of the queue, and warns when it is too deep for long.
func (s *Server) watchQueue(ctx context.Context) error {
	return s.dispatch.Watch(ctx, s.counters.showDepth)
}

// dropEvents counts events that nobody will act on.
func (c *counters) dropEvents(reason string, n int) { c.dropped.Add(float64(n), reason) }

// expose registers what is kept elsewhere.
func (s *Server) expose() {
	s.metrics.GaugeFunc("kici_orch_agents_active", "Registered, connected agents.", func() float64 { return float64(len(s.hub.Connections())) })
	s.metrics.GaugeFunc("kici_orchestrator_draining", "1 while this node gives out no jobs.", func() float64 {
		if s.dispatch.Draining() {
			return 1
		}
		return 0
	})
	s.exposeLogs()
	s.exposeAgents()
}

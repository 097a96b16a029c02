package server_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/servertest"
)

// failings are what the system whose traffic was recorded did wrong in running jobs, each with the tests that show it
// absent here. A name stands for a test of whichever package.
var failings = map[string]string{
	"an agent that answers at once finds no run":                            "TestAgentsThatAnswerAtOnceLoseNoRun",
	"more jobs for an agent than it has room for":                           "TestAnAgentGetsNoMoreJobsThanItHasSlots TestAnAgentWithoutRoomClaimsNothing",
	"a restart of the server loses running jobs":                            "TestARecordedAgentKeepsItsJobOverARestart TestRecordedAgentSurvivesTheKillOfItsServer TestKilledServersJobIsReclaimed",
	"a slot stays taken after a restart":                                    "TestRestartWaitsForTheAgentsOfBefore TestTheDispatcherIsWokenWhenAnAgentHasRoom",
	"a superseded job is killed without its hooks":                          "TestAbortRunsCancelHooks TestCancel",
	"the newer run of a group needs an agent before it may cancel":          "TestANewerRunTakesTheGroup",
	"the agent's token in what a job is told of its surroundings":           "TestSecretsAreMaskedOnEveryWayOut TestTheEnvironmentOfStepsIsBuiltFromNothing",
	"a cold build ends the run before its jobs":                             "TestNothingRunsBeforeTheBuild TestRecordedAgentsFareBetter",
	"secret outputs of a cold run have no key":                              "TestSecretOutputsReachDependantsAndRestNowhereInClear",
	"dependants of what an init job resolved are never released":            "TestAnInitJobCompletesThePlaceThatWaitsForIt TestAMatrixOfAnAgentTakesItsPlace TestAnInitJobThatFailsFailsItsPlace",
	"dependants of a generator that threw are never released":               "TestGeneratorsThatGiveNothingOrFail",
	"a lost wake-up leaves a job beside an idle agent":                      "TestTheDispatcherIsWokenWhenAnAgentHasRoom TestWhateverHappensEveryRunEndsAndNothingIsLeft",
	"a dependant lacks the outputs of the host that ended last":             "TestADependantOfHostsOfOneNameGetsTheOutputsOfAll",
	"two hosts of one name make two children of one name, which never run":  "TestADependantOfHostsOfOneNameGetsTheOutputsOfAll TestHostsOfOneNameMakeChildrenOfDifferentNames",
	"an agent that waits for its group is never told to go on":              "TestAPatientAgentWaitsForItsPlace TestAnAgentThatCannotWaitLosesTheJobUntilItsTurn TestAJobWaitsForItsConcurrencyGroup",
	"an agent that ends leaves its step runner behind":                      "TestEndsOfAnAgent TestAgentsEndEndsTheJob TestKillLeavesNoSurvivor",
	"a draining agent eats jobs":                                            "TestDrainingAgentKeepsNoJobFromTheNext TestRecordedAgentsFareBetter",
	"a loud step loses its run":                                             "TestLoudStepIsStoredWhole TestAFastPeerIsReadMoreSlowlyAndLosesNothing TestALoudStepWaitsForASlowServerAndLosesNothing",
	"much output at once kills the step runner":                             "TestOutputIsWholeAlthoughTheAgentIsSlow TestOutputStreamsAsItComes",
	"a job that emits an event is unknown":                                  "TestAJobEmitsAndItsEndIsTold TestAJobEmits",
	"contexts bind nothing, and one that does not exist is no error":        "TestAJobGetsItsContextsBesideTheFlatScopeAndItsUpstreams TestAJobOfNoContextThereIsFailsBeforeAnAgentSeesIt",
	"mounting a file ends the masking, and lines of a value are not masked": "TestSecretsAreReadAndMasked TestSecretsAreMaskedOnEveryWayOut",
	"what a step asks of its secrets is not there":                          "TestSecretsAreReadAndMasked TestSecretsOfAStep",
	"schemas of outputs are not enforced":                                   "TestOutputsMustFitTheirSchemasAndJSON",
	"jobs that their generator no longer makes are given out":               "TestWhatAnAgentNoLongerFindsIsDropped TestRecordedAgentsFareBetter",
	"a dependant of groups gets no outputs of theirs":                       "TestAGeneratorsJobsJoinTheRun TestNeedsOfAGroup",
	"a restore right after a save misses":                                   "TestARestoreRightAfterASaveHits",
	"prefixes of cache keys never hit in files":                             "TestPrefixesAreTriedInOrderAndGiveTheNewest",
	"a path of a cache that does not exist fails its step":                  "TestCaches",
	"hooks of a job have the step indices of others":                        "TestHooks",
	"a job whose rule does not pass tells nothing of its steps":             "TestJobRuleSkipsEverything TestRules",
	"a hook that fails is only logged":                                      "TestHooks",
	"init jobs of one run go to one agent all at once":                      "TestEveryKindOfJobIsGivenOutAloneAndWhole",
	"a matrix of the wrong kind fails as an empty one":                      "TestFieldsThatCannotBeComputed",
	"the agent clones although it has the source":                           "TestSourceAndDependenciesArePackedAndUsed",
	"a branch that is gone fails jobs that know their commit":               "TestCloneFindsTheCommitOfTheJob",
	"generators run although the build before them failed":                  "TestNothingRunsBeforeTheBuild",
	"ends of builds are told as ends of jobs":                               "TestJobsThatWorkForOthersAreNotToldOf",
	"only a restart brings waiting jobs back":                               "TestWhateverHappensEveryRunEndsAndNothingIsLeft TestNoCommandsLeaveARunStuckOrAJobTwice",
	"jobs of a generator lack parts of their frame":                         "TestEveryKindOfJobIsGivenOutAloneAndWhole",
	"work that needs no agent begins a minute after the start":              "TestStartForgetsTheConnectionsOfItsLastLife TestRestartWaitsForTheAgentsOfBefore",
	"the first bound context names the job and the last one's secrets win":  "TestTheLastContextOfAJobWinsOnTheWire TestTheContextsOfAWorkflowLieUnderThoseOfItsJobs",
	"a link to a blob says what it may for an hour":                         "TestLinksAllowOneMethodOnOneBlobForAWhile TestALinkForWritingCannotChangeWhatWasConfirmed",
	"a held workflow without its contexts runs open":                        "TestAPendingHoldNamesEveryContextThatItsReleaseAsksAgain TestAContextIsDeletedOrHoldsAndNeverBoth",
	"a step that may fail fails its job":                                    "TestContinueOnErrorStillFailsTheJob", // kept: it is what authors were told of late, and their lock files rely on it
}

// TestEveryFailingHasItsTests keeps the list true when tests are renamed.
func TestEveryFailingHasItsTests(t *testing.T) {
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for failing, tests := range failings {
		for name := range strings.FieldsSeq(tests) {
			if !known[name] {
				t.Errorf("%s: there is no test %s", failing, name)
			}
		}
	}
}

// lockOf is a lock file of one workflow with these jobs.
func lockOf(jobs ...string) []byte {
	return fmt.Appendf(nil, `{"schemaVersion":29,"source":{"file":".kici/workflows/ci.ts","export":"#ci"},"workflows":[
{"name":"ci","contentHash":"h","compileSchemaVersion":5,"triggers":[{"_type":"push","branches":[{"type":"glob","pattern":"main"}],"paths":[]}],"jobs":[%s]}]}`,
		strings.Join(jobs, ","))
}

func lockJob(name, members string) string {
	return fmt.Sprintf(`{"_type":"static","name":%q,"steps":[]%s}`, name, members)
}

// TestEveryKindOfJobIsGivenOutAloneAndWhole lets an agent of one slot do a run with init jobs, a generator and what it
// made, and a job that waits for them.
func TestEveryKindOfJobIsGivenOutAloneAndWhole(t *testing.T) {
	const linux = `,"runsOn":[{"kind":"exact","value":"linux"}]`
	results := map[string]string{
		"init":      `{"initComplete":true,"initResult":{"env":{"A":"1"}}}`,
		"generator": `{"dynamicComplete":true,"dynamicJobs":[` + lockJob("made", linux) + `]}`,
		"standard":  `{}`,
	}
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		p := h.Dial(t)
		m := register("agent")
		m.Labels = []string{"linux", "kici:role:init-runner", "kici:os:linux", "kici:arch:x64"}
		p.Hello(h, m)
		h.Push(t, app, "main", h.Commit(t, app, lockOf(lockJob("a", linux+`,"dynamicEnv":true`), lockJob("b", linux+`,"dynamicEnv":true`),
			`{"_type":"dynamic","source":{"file":".kici/workflows/ci.ts","index":2},"group":"g"}`, lockJob("last", linux+`,"needs":["a","b",{"group":"g"}]`))))
		for range 7 { // two init jobs with their places, the generator with its job, and the last
			d, ok := p.Next().(wire.JobDispatch)
			if !ok {
				t.Fatal("no dispatch")
			}
			if n := h.Count(t, "SELECT count(*) FROM dispatch_queue WHERE status = 'dispatched'"); n != 1 {
				t.Errorf("the agent of one slot holds %d jobs", n)
			}
			kind := wholeFrame(t, d)
			p.Send(wire.JobStatus{MessageID: "r", RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
			p.Send(wire.JobStatus{MessageID: "e", RunID: d.RunID, JobID: d.JobID, State: ci.JobSuccess, Timestamp: 1, Data: json.RawMessage(results[kind])})
		}
		h.AwaitRuns(t, 1)
		requireAllGreen(t, h, 1)
	})
}

// wholeFrame requires of a dispatch what every agent reads, and gives the kind of its job.
func wholeFrame(t *testing.T, d wire.JobDispatch) (kind string) {
	t.Helper()
	var c struct {
		InitOnly, DynamicJobFn                    bool
		Name, BaseJobName, WorkflowName, Provider string
		Event                                     *ci.Event
		DynamicSource                             json.RawMessage
	}
	if err := json.Unmarshal(d.JobConfig, &c); err != nil {
		t.Fatal(err)
	}
	kind = "standard"
	switch {
	case c.InitOnly:
		kind = "init"
	case c.DynamicJobFn:
		kind = "generator"
	case c.Name == "" || c.BaseJobName == "" || c.Provider == "" || (c.Name == "made") != (c.DynamicSource != nil):
		t.Errorf("configuration %s", d.JobConfig)
	}
	if d.OrgID == "" || d.RepoID == "" || (kind == "standard") != (d.CacheRefScope == "shared") || d.RequestID == "" || d.SHA == "" || c.WorkflowName != "ci" || c.Event == nil || c.Event.Type != "push" {
		t.Errorf("the frame of %s %q lacks something: org %q, repo %q, scope %q, request %q, %s", kind, c.Name, d.OrgID, d.RepoID, d.CacheRefScope, d.RequestID, d.JobConfig)
	}
	return kind
}

// TestADependantOfHostsOfOneNameGetsTheOutputsOfAll runs a job on two hosts of one name, which end one right after the
// other, and looks at what the job after them is told.
func TestADependantOfHostsOfOneNameGetsTheOutputsOfAll(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		h.Start(t)
		peers := map[string]*servertest.Peer{}
		for _, id := range []string{"a", "b"} {
			peers[id] = h.Dial(t)
			m := register(id)
			m.Hostname, m.Labels = "vm", []string{"web", id}
			peers[id].Hello(h, m)
		}
		h.Push(t, app, "main", h.Commit(t, app, lockOf(lockJob("each", `,"runsOnAll":{"include":[[{"kind":"exact","value":"web"}]],"exclude":[]}`),
			lockJob("after", `,"runsOn":[{"kind":"exact","value":"a"}],"needs":["each"]`))))
		for _, id := range []string{"a", "b"} {
			d, ok := peers[id].Next().(wire.JobDispatch)
			if !ok {
				t.Fatal("no dispatch")
			}
			peers[id].SendRaw(fmt.Appendf(nil, `{"type":"job.status","messageId":"e","runId":%q,"jobId":%q,"state":"success","timestamp":1,"data":{"outputs":{"s":{"k":%q}}}}`,
				d.RunID, d.JobID, id))
		}
		d, ok := peers["a"].Next().(wire.JobDispatch)
		if !ok {
			t.Fatal("no dispatch of the job after the hosts")
		}
		raw, err := json.Marshal(d.UpstreamJobOutputs["each"])
		want := `{"byHost":{"vm, a":{"s":{"k":"a"}},"vm, b":{"s":{"k":"b"}}},"summary":{"failedHosts":[],"outputs":{"s":[{"k":"a"},{"k":"b"}]},"succeededHosts":["vm, a","vm, b"]}}`
		if err != nil || string(raw) != want {
			t.Errorf("outputs of the hosts %s, %v; want %s", raw, err, want)
		}
		if len(d.UpstreamJobStatuses) != 2 || d.UpstreamJobStatuses["each (vm, b)"] != ci.JobSuccess {
			t.Errorf("ends of the hosts %v", d.UpstreamJobStatuses)
		}
	})
}

package ci

// JobKind tells what a job is for. Most run an author's steps; the others work for jobs of their run.
type JobKind string

// The kinds of jobs.
const (
	KindStandard  JobKind = "standard"
	KindInit      JobKind = "init"      // evaluates the functions of one job that only an agent can run
	KindGenerator JobKind = "generator" // evaluates a function that gives jobs
	KindBuild     JobKind = "build"     // packs source and dependencies for the jobs of its run
	KindBringup   JobKind = "bringup"   // starts an agent on a host that has none
)

// Internal tells that the job was not written by the author as one of theirs: what needs jobs never sees it.
func (k JobKind) Internal() bool { return k != KindStandard }

// Names of internal jobs. They appear to people beside the jobs that they work for.

// InitJobName is the name of the job that evaluates the functions of another.
func InitJobName(workflow, target string) string { return "__init__" + workflow + "__" + target }

// BuildJobName is the name of the job that packs source and dependencies.
func BuildJobName(workflow string) string { return "__build__" + workflow }

// InstallJobName stands for a job where installing the dependencies of a workflow is held.
func InstallJobName(workflow string) string { return CutName("__install__" + workflow) }

// BringupJobName is the name of the job that starts an agent on a host.
func BringupJobName(workflow, agentID string) string {
	return "__bringup__" + workflow + "__" + agentID
}

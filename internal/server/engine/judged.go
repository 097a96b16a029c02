package engine

import (
	"kici/internal/core/ci"
	"kici/internal/decide/contexts"
	"kici/internal/decide/plan"
	"kici/internal/server/store"
)

// InstallJudgement is what was decided about the secrets with which a workflow installs its dependencies, when its run was
// made, and again at the end of each hold of it.
type InstallJudgement struct {
	Decision string // pass, strip, hold or reject
	// Reason is a word of a closed set: "" of pass; contributor of strip; the type of the hold; of reject reference,
	// unavailable, context or secret.
	Reason string
	Tier   ci.Tier // of the contributor, "" when nobody has said anything
}

// The decisions.
const (
	InstallPass   = "pass"
	InstallStrip  = "strip"
	InstallHold   = "hold"
	InstallReject = "reject"
)

// judgementOf sorts what became of a workflow whose references are sound.
func judgementOf(v vetted, tier ci.Tier, hold *contexts.Hold, failure *ci.InitFailure) InstallJudgement {
	switch {
	case v.install.Stripped:
		return InstallJudgement{InstallStrip, "contributor", tier}
	case failure != nil:
		return InstallJudgement{InstallReject, "context", tier}
	case hold != nil:
		return InstallJudgement{InstallHold, string(hold.Type), tier}
	case v.missing != nil:
		return InstallJudgement{InstallReject, "secret", tier}
	}
	return InstallJudgement{InstallPass, "", tier}
}

// refused is the judgement about a workflow of which something is wrong whatever the gates say.
func (v vetted) refused(tier ci.Tier) InstallJudgement {
	return InstallJudgement{InstallReject, v.why, tier}
}

// judgeInstall tells of a judgement once it is stored. A workflow that installs without secrets has none.
func (e *Engine) judgeInstall(tx *store.Tx, asked plan.WorkflowSecrets, j InstallJudgement) {
	if len(asked.Registries)+len(asked.InstallEnv) == 0 || j.Decision == InstallReject && j.Reason == "" {
		return // the latter is about its contexts
	}
	tx.After(func() { e.judged(j) })
}

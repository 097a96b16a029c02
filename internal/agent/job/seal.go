package job

import (
	"kici/internal/core/wire"
	"kici/internal/kit/seal"
)

// seal encrypts the secret outputs of a job for the run's public key, so that only the server can read them. Without a
// key they are dropped, which the log of the job tells its author.
func (j *Job) seal(outputs map[string]string) map[string]wire.SecretOutput {
	if len(outputs) == 0 {
		return nil
	}
	if j.d.RunPublicKey == "" {
		j.say("Warning: secret outputs are dropped, since the server gave no key for them")
		return nil
	}
	sealed, err := sealOutputs(j.d.RunPublicKey, outputs)
	if err != nil {
		j.log.Error("secret outputs are dropped", "err", err)
		j.say("Warning: secret outputs are dropped: %v", err)
		return nil
	}
	return sealed
}

// sealOutputs uses one key pair for all outputs of a job.
func sealOutputs(runPublicKey string, outputs map[string]string) (map[string]wire.SecretOutput, error) {
	own, err := seal.NewKeyPair()
	if err != nil {
		return nil, err
	}
	agreed, err := seal.Agree(own.Private, runPublicKey, seal.RunOutputs)
	if err != nil {
		return nil, err
	}
	sealed := make(map[string]wire.SecretOutput, len(outputs))
	for name, value := range outputs {
		sealed[name] = wire.SecretOutput{AgentPublicKey: own.Public, Encrypted: agreed.Seal([]byte(value))}
	}
	return sealed, nil
}

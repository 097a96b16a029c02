package adminwire

// RotatedKey counts what was sealed with the current master key. What was skipped could not be read, with the previous key
// either, and is as it was.
type RotatedKey struct {
	ReEncrypted              int `json:"reEncrypted"`        // secrets; none of them is ever skipped
	ReEncryptedConfigs       int `json:"reEncryptedConfigs"` // what verifies the deliveries of sources
	SkippedConfigs           int `json:"skippedConfigs"`
	ReEncryptedRunKeys       int `json:"reEncryptedRunKeys"`
	SkippedRunKeys           int `json:"skippedRunKeys"`
	ReEncryptedSecretOutputs int `json:"reEncryptedSecretOutputs"`
	SkippedSecretOutputs     int `json:"skippedSecretOutputs"`
	ReEncryptedSigningKeys   int `json:"reEncryptedSigningKeys"`
	SkippedSigningKeys       int `json:"skippedSigningKeys"`
}

// Skipped is all that was skipped.
func (r RotatedKey) Skipped() int {
	return r.SkippedConfigs + r.SkippedRunKeys + r.SkippedSecretOutputs + r.SkippedSigningKeys
}

//! Files of `testdata/`, embedded so that a test needs no path to them.

/// Whole reports of Dynamo 1.5.1 over [`traces::FORTY_REQUESTS`]; `testdata/reports/README.md` says how they were made.
pub mod reports {
    /// vLLM, four workers; one preemption.
    pub const VLLM_AGGREGATED: &str =
        include_str!("../../../testdata/reports/dynamo-1.5.1-vllm-aggregated.json");
    /// vLLM, two prefill and two decode workers; eleven preemptions.
    pub const VLLM_DISAGGREGATED: &str =
        include_str!("../../../testdata/reports/dynamo-1.5.1-vllm-disaggregated.json");
    /// SGLang, four workers; one retraction.
    pub const SGLANG_AGGREGATED: &str =
        include_str!("../../../testdata/reports/dynamo-1.5.1-sglang-aggregated.json");
    /// SGLang, two prefill and two decode workers; ten retractions.
    pub const SGLANG_DISAGGREGATED: &str =
        include_str!("../../../testdata/reports/dynamo-1.5.1-sglang-disaggregated.json");

    /// All four, by the name of the row.
    pub const ALL: [(&str, &str); 4] = [
        ("vllm-aggregated", VLLM_AGGREGATED),
        ("vllm-disaggregated", VLLM_DISAGGREGATED),
        ("sglang-aggregated", SGLANG_AGGREGATED),
        ("sglang-disaggregated", SGLANG_DISAGGREGATED),
    ];
}

/// Small traces.
pub mod traces {
    /// Forty requests of conversations: 86,904 input and 21,004 output tokens.
    pub const FORTY_REQUESTS: &str = include_str!("../../../testdata/traces/forty-requests.jsonl");
}

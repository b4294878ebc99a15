use super::*;

fn pair(pair: u32, baseline: f64, candidate: f64) -> Pair {
    Pair { pair, first: None, baseline, candidate }
}

fn measurements(values: &[(u32, f64)]) -> Vec<Measurement> {
    values.iter().map(|&(pair, value)| Measurement { pair, value }).collect()
}

#[test]
fn values_that_cannot_be_a_ratio_are_refused() {
    let check = |baseline: f64, candidate: f64, message: &str| {
        let error =
            PairedSample::new("wall_ms", vec![pair(0, 1.0, 1.0), pair(3, baseline, candidate)]).unwrap_err();
        assert_eq!(error.to_string(), message);
    };
    check(0.0, 1.0, "divide in pair 3: the baseline is 0, not a positive finite number");
    check(1.0, 0.0, "divide in pair 3: the candidate is 0, not a positive finite number");
    check(1.0, -2.5, "divide in pair 3: the candidate is -2.5, not a positive finite number");
    check(f64::NAN, 1.0, "divide in pair 3: the baseline is NaN, not a positive finite number");
    check(1.0, f64::INFINITY, "divide in pair 3: the candidate is inf, not a positive finite number");
    check(1e-300, 1e300, "divide in pair 3: the ratio inf is outside the range of a double");
    check(1e300, 1e-300, "divide in pair 3: the ratio 0 is outside the range of a double");
}

#[test]
fn arms_are_joined_by_identity_not_by_place() {
    let schedule = Schedule::generate(1, 3, 0);
    let baseline = measurements(&[(2, 4.0), (0, 1.0), (1, 2.0)]);
    let candidate = measurements(&[(1, 3.0), (2, 5.0), (0, 1.5)]);
    let sample = PairedSample::join("wall_ms", &schedule, &baseline, &candidate).unwrap();
    assert_eq!(sample.ratios(), [1.5, 1.5, 1.25]);
    assert_eq!(sample.pairs().iter().map(|pair| pair.first.unwrap()).collect::<Vec<_>>(), schedule.first);
}

#[test]
fn incomplete_and_repeated_pairs_are_refused() {
    let schedule = Schedule::generate(1, 3, 0);
    let check = |baseline: &[(u32, f64)], candidate: &[(u32, f64)], message: &str| {
        let joined = PairedSample::join("ms", &schedule, &measurements(baseline), &measurements(candidate));
        assert_eq!(joined.unwrap_err().to_string(), message);
    };
    check(&[(0, 1.0), (1, 1.0)], &[(0, 1.0)], "join pair 1, whose candidate is missing");
    check(&[(0, 1.0)], &[(0, 1.0), (2, 1.0)], "join pair 2, whose baseline is missing");
    check(&[(0, 1.0), (0, 1.0)], &[(0, 1.0)], "join pair 0, which occurs more than once");
    check(&[(3, 1.0)], &[(3, 1.0)], "join pair 3, which a schedule of 3 pairs does not contain");
}

#[test]
fn series_need_one_finite_reading_per_pair() {
    let sample = PairedSample::new("ms", vec![pair(0, 1.0, 1.0), pair(1, 1.0, 1.0)]).unwrap();
    let series = |values: &[f64]| Series { name: "temperature_c".to_owned(), values: values.to_vec() };
    let short = sample.clone().with_telemetry(series(&[1.0])).unwrap_err();
    assert_eq!(short.to_string(), "attach the series \"temperature_c\": it has 1 readings for 2 pairs");
    let gap = sample.clone().with_telemetry(series(&[1.0, f64::NAN])).unwrap_err();
    assert_eq!(gap.to_string(), "attach the series \"temperature_c\": its reading for pair 1 is NaN");
    let once = sample.with_telemetry(series(&[1.0, 2.0])).unwrap();
    assert!(matches!(once.with_telemetry(series(&[1.0, 2.0])), Err(SampleError::SeriesRepeated { .. })));
}

#[test]
fn the_digest_names_the_whole_set() {
    let sample = PairedSample::new("ms", vec![pair(0, 1.0, 1.5), pair(1, 2.0, 2.5)]).unwrap();
    let reordered = PairedSample::new("ms", vec![pair(1, 2.0, 2.5), pair(0, 1.0, 1.5)]).unwrap();
    assert_eq!(sample.digest(), reordered.digest());
    let longer =
        PairedSample::new("ms", vec![pair(0, 1.0, 1.5), pair(1, 2.0, 2.5), pair(2, 1.0, 1.0)]).unwrap();
    let timed = sample.clone().with_elapsed_s(vec![0.0, 1.0]).unwrap();
    let renamed = PairedSample::new("s", sample.pairs().to_vec()).unwrap();
    for other in [longer, timed, renamed, sample.swapped()] {
        assert_ne!(sample.digest(), other.digest());
    }
    assert_eq!(sample.digest().to_string().parse(), Ok(sample.digest()));
}

#[test]
fn a_sample_survives_a_round_trip_and_a_bad_one_is_refused() {
    let pairs = vec![pair(0, 0.1, 0.3), Pair { first: Some(Arm::Candidate), ..pair(1, 1e-9, 3.3) }];
    let sample = PairedSample::new("ms", pairs).unwrap().with_elapsed_s(vec![0.0, 0.7]).unwrap();
    let text = serde_json::to_string(&sample).unwrap();
    assert_eq!(serde_json::from_str::<PairedSample>(&text).unwrap(), sample);
    let zero = r#"{"metric":"ms","pairs":[{"pair":0,"baseline":0.0,"candidate":1.0}]}"#;
    assert!(serde_json::from_str::<PairedSample>(zero).is_err());
}

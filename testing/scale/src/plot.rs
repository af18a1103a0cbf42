//! Plots of means as SVG.

use crate::table::Mean;
use crate::{ALL, Contender, Times};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

type Drawn = Result<(), Box<dyn Error>>;

const SIZE: (u32, u32) = (760, 420);
/// One colour for each policy, also for people who cannot distinguish red and green (Okabe and
/// Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
];

/// A line of a plot.
struct Line {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Plots the slowest rank relative to the best possible over the number of nodes, for one scenario.
///
/// # Errors
/// The file cannot be written.
pub fn slowest(path: &Path, scenario: &str, means: &[Mean]) -> Drawn {
    let of = means.iter().filter(|mean| mean.scenario == scenario);
    let of = of.map(|mean| (mean.contender, mean.nodes, mean.times_bound.0));
    let lines = lines(of, "");
    let highest = highest(&lines).max(1.2);
    let title = format!("{scenario}: time of the slowest rank / bound");
    draw(path, &title, "times the bound", &lines, 1.0..highest * 1.03)
}

/// Plots the CPU time of decisions over the number of nodes.
///
/// # Errors
/// The file cannot be written.
pub fn cpu(path: &Path, times: &[(Contender, usize, Times)]) -> Drawn {
    let of = times.iter().map(|(contender, nodes, times)| (*contender, *nodes, times.choice_ns));
    let mut all = lines(of, ": choice");
    // The queue is the same for all policies, so one curve suffices.
    let turns = times.iter().filter(|(contender, ..)| contender.name == "proportional, job");
    let points = turns.map(|(_, nodes, times)| (*nodes as f64, times.turn_ns)).collect();
    all.push(Line { name: "disk: push or pop".into(), colour: RGBColor(128, 128, 128), points });
    let highest = highest(&all);
    draw(path, "CPU time of a decision", "nanoseconds", &all, 0.0..highest * 1.1)
}

fn lines(values: impl Iterator<Item = (Contender, usize, f64)> + Clone, what: &str) -> Vec<Line> {
    let line = |(contender, colour): (Contender, RGBColor)| {
        let of = values.clone().filter(|(of, ..)| *of == contender);
        let points = of.map(|(_, nodes, value)| (nodes as f64, value)).collect();
        Line { name: format!("{}{what}", contender.name), colour, points }
    };
    ALL.into_iter().zip(COLOURS).map(line).collect()
}

fn highest(lines: &[Line]) -> f64 {
    lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(0.0, f64::max)
}

fn draw(path: &Path, title: &str, unit: &str, lines: &[Line], values: Range<f64>) -> Drawn {
    let nodes = lines.iter().flat_map(|line| &line.points).map(|(nodes, _)| *nodes);
    let most = nodes.fold(17.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(48)
        // Space for the legend.
        .margin_right(200)
        .build_cartesian_2d((16.0..most).log_scale().base(2.0), values)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("nodes")
        .y_desc(unit)
        .x_label_formatter(&|nodes| format!("{nodes:.0}"))
        .draw()?;
    for (place, line) in lines.iter().enumerate() {
        add(&mut chart, line)?;
        legend(&area, place, line)?;
    }
    area.present()?;
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, RangedCoordf64>>;

fn add(chart: &mut Chart<'_, '_>, line: &Line) -> Drawn {
    let style = line.colour.stroke_width(2);
    chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
    let points = line.points.iter().map(|at| Circle::new(*at, 3, line.colour.filled()));
    chart.draw_series(points)?;
    Ok(())
}

/// Draws the legend beside the plot.
fn legend(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    place: usize,
    line: &Line,
) -> Drawn {
    let (x, y) = (SIZE.0 as i32 - 190, 50 + 20 * place as i32);
    area.draw(&PathElement::new([(x, y), (x + 18, y)], line.colour.stroke_width(2)))?;
    let style = ("sans-serif", 12).into_font().color(&BLACK);
    area.draw(&Text::new(line.name.clone(), (x + 24, y - 6), style))?;
    Ok(())
}

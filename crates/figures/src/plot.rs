//! Plots: lines with error bars, as SVG.

use crate::statistics::Spread;
use plotters::prelude::*;
use std::io::{Error, Result};
use std::path::Path;

/// A line of a plot.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, Spread)>,
}

/// What a plot says besides.
pub struct Labels<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

const SIZE: (u32, u32) = (720, 460);
const COLOURS: [RGBColor; 6] = [
    RGBColor(200, 60, 50),
    RGBColor(60, 110, 190),
    RGBColor(60, 150, 80),
    RGBColor(130, 80, 160),
    RGBColor(110, 110, 110),
    RGBColor(200, 140, 30),
];

/// Draws the lines into a file.
pub fn lines(path: &Path, labels: &Labels<'_>, series: &[Series]) -> Result<()> {
    draw(path, labels, series).map_err(|e| Error::other(format!("{}: {e}", path.display())))
}

fn draw(
    path: &Path,
    labels: &Labels<'_>,
    series: &[Series],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let points = || series.iter().flat_map(|series| &series.points);
    let right = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let top = points().map(|(_, y)| y.mean + y.deviation).fold(0.0, f64::max) * 1.15;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(labels.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(54)
        .build_cartesian_2d(0.0..right * 1.02, 0.0..top)?;
    chart.configure_mesh().x_desc(labels.x).y_desc(labels.y).light_line_style(WHITE).draw()?;
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let line = series.points.iter().map(|(x, y)| (*x, y.mean));
        let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
        let colour = *colour;
        drawn
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let bars = series.points.iter().map(|(x, y)| {
            let (low, high) = (y.mean - y.deviation, y.mean + y.deviation);
            ErrorBar::new_vertical(*x, low, y.mean, high, colour.filled(), 6)
        });
        chart.draw_series(bars)?;
    }
    let place = SeriesLabelPosition::LowerLeft;
    let mut legend = chart.configure_series_labels();
    legend.position(place).background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

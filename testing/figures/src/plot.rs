//! Plots: lines with error bars, and what the papers state beside them; as SVG, and as PNG where
//! there is a program for that.

use crate::statistics::Spread;
use plotters::prelude::*;
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// A line of a plot.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, Spread)>,
    /// Points that a paper states, and nobody measured here.
    is_stated: bool,
}

impl Series {
    /// What was measured, or follows from it.
    pub fn new(name: String, points: Vec<(f64, Spread)>) -> Self {
        Self { name, points, is_stated: false }
    }

    /// What a paper states, in units of what was measured here: without that there is nothing.
    pub fn stated(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let at = |(x, mean)| (x, Spread { mean, deviation: 0.0 });
        let points: Vec<_> = points.into_iter().map(at).collect();
        let name = format!("paper: {name}");
        (!points.is_empty()).then_some(Self { name, points, is_stated: true })
    }
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
        if series.is_stated {
            let points = series.points.iter().map(|(x, y)| (*x, y.mean));
            let drawn = chart.draw_series(points.map(|at| Circle::new(at, 5, colour)))?;
            let colour = *colour;
            drawn.label(&series.name).legend(move |(x, y)| Circle::new((x + 9, y), 5, colour));
            continue;
        }
        let line = series.points.iter().map(|(x, y)| (*x, y.mean));
        let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
        let colour = *colour;
        drawn
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        // One value has none.
        let spread = series.points.iter().filter(|(_, y)| y.deviation > 0.0);
        let bars = spread.map(|(x, y)| {
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

/// Makes a PNG beside an SVG; what is missing for that, if something is.
pub fn png(svg: &Path) -> Result<Option<&'static str>> {
    let mut convert = Command::new("rsvg-convert");
    convert.args(["--zoom", "2", "--output"]).arg(svg.with_extension("png")).arg(svg);
    match convert.status() {
        Ok(status) if status.success() => Ok(None),
        Ok(status) => Err(Error::other(format!("rsvg-convert {}: {status}", svg.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Some("rsvg-convert (librsvg2-bin)"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_paper_states_stands_beside_what_was_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let point = |mean| Spread { mean, deviation: 0.1 };
        let measured = Series::new("primary".into(), vec![(0.0, point(20.0)), (1.0, point(10.4))]);
        assert!(Series::stated("half", None).is_none());
        let all = [Some(measured), Series::stated("half", [(1.0, 10.0)])];
        let labels = Labels { title: "Readers", x: "perturbed disks", y: "MiB/s" };
        lines(&path, &labels, &all.into_iter().flatten().collect::<Vec<_>>()).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("primary") && svg.contains("paper: half"), "{svg}");
        assert!(svg.contains("<circle"), "{svg}");
        match png(&path).unwrap() {
            Some(what) => println!("skipped: needs {what}"),
            None => {
                let png = std::fs::read(path.with_extension("png")).unwrap();
                assert!(png.starts_with(b"\x89PNG"));
            }
        }
    }
}
